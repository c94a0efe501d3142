"""Gemma 1 (arXiv 2403.08295): Llama's layer with norm weights stored minus one, a scaled embedding,
and a GELU."""

from collections.abc import Mapping
from dataclasses import replace

from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.gguf_rows import GGUFRows
from paredown.models.families.llama import LLAMA
from paredown.spec.model import Embedding, ModelSpec
from paredown.spec.norm import Norms

_ACTIVATION = "gelu_pytorch_tanh"


def read_spec(fields: Fields) -> ModelSpec:
    fields.must_be_off("use_bidirectional_attention")
    bias = fields.flag("attention_bias", False)
    traits = FamilyTraits(
        family="gemma", qkv_bias=bias, attention_out_bias=bias, default_num_kv_heads=16,
        default_head_dim=256,
    )  # fmt: skip
    spec = read_gated_rotary(fields.overlaid({"hidden_act": _activation(fields)}), traits)
    norm = replace(spec.last_norm, offset=1.0)
    layers = tuple(replace(layer, norms=Norms(attention=norm, mlp=norm)) for layer in spec.layers)
    return replace(
        spec,
        layers=layers,
        final_norm=norm,
        embedding=Embedding(multiplier=spec.hidden_size**0.5),
        output=replace(spec.present_output, is_tied=fields.flag("tie_word_embeddings", True)),
    )


def _activation(fields: Fields) -> str:
    """Returns the activation. Configs that say gelu mean its tanh approximation; the newer field
    wins."""
    name = "hidden_act"
    if fields.config.get("hidden_activation"):
        fields.pass_over(name)
        name = "hidden_activation"
    found = fields.text(name, _ACTIVATION)
    return _ACTIVATION if found == "gelu" else found


def _config_from_gguf(_fields: Fields, _config: Mapping[str, object]) -> dict[str, object]:
    return {"hidden_act": _ACTIVATION}


GEMMA = replace(
    LLAMA,
    model_type="gemma",
    read_spec=read_spec,
    gguf=GGUFRows(
        architecture="gemma",
        class_name="GemmaForCausalLM",
        norm_offset=1.0,
        output="tied",
        takes_bias=False,
        more_config=_config_from_gguf,
    ),
)
