"""Nomic's BERT (arXiv 2402.01613): post-norm as BERT, with rotary positions, a gated MLP and no
biases. Its configs have GPT-2's names for sizes, and BERT's since Transformers knows it."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paredown.errors import UnsupportedError
from paredown.models.families import bert
from paredown.models.families.family import Family, LinearModule, fused_modules
from paredown.models.families.fields import Fields
from paredown.models.families.gguf_rows import (
    ENCODER_KEYS,
    LINEARS,
    POST_NORMS,
    GGUFRows,
    Metadata,
    check_whole_turns,
)
from paredown.models.families.gguf_rows import (
    TOKEN_TYPES as TYPE_COUNT,
)
from paredown.models.families.rotary import read_rotary
from paredown.spec.mlp import Activation, Mlp
from paredown.spec.model import ModelSpec
from paredown.spec.roles import QKV_ROLES

_THETA = 1000.0
# Names of sizes: BERT's -> GPT-2's.
_OLD_SIZES: Mapping[str, str] = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}
_GATED: Mapping[str, Activation] = {"swiglu": "silu", "geglu": "gelu"}
_BIASES = ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")


def read_spec(fields: Fields) -> ModelSpec:
    for name in ("prenorm", "parallel_block", "use_rms_norm", "causal", "rotary_emb_interleaved"):
        fields.must_be_off(name)
    fields.must_be("rotary_emb_scale_base", None)
    fields.must_be("rotary_emb_fraction", 1.0)
    if fields.config.get("moe_every_n_layers") is not None:
        fields.must_be("moe_every_n_layers", 0)
    own = _with_new_names(fields)
    theta = fields.number("rotary_emb_base", _THETA)
    spec = bert.post_norm_spec(
        own, "nomic_bert", num_token_types=fields.integer("type_vocab_size", 2)
    )
    rotary = read_rotary(own, theta)
    layers = tuple(
        replace(
            layer,
            attention=replace(layer.attention, rotary=rotary, qkv_bias=False, out_bias=False),
            mlp=Mlp(size=layer.mlp.size, is_gated=True, activation=layer.mlp.activation),
        )
        for layer in spec.layers
    )
    return replace(
        spec,
        max_positions=_max_positions(fields, spec.max_positions),
        embedding=replace(spec.embedding, positions=None),
        layers=layers,
    )


def _with_new_names(fields: Fields) -> Fields:
    """Returns the fields under BERT's names."""
    if "n_embd" not in fields.config:
        defaults = {"hidden_act": "silu", "max_position_embeddings": 2048}
        return fields.overlaid(
            {name: value for name, value in defaults.items() if name not in fields.config}
        )
    for name in _BIASES:
        fields.must_be(name, False)
    changes: dict[str, object] = {
        new: fields.config.get(old) for new, old in _OLD_SIZES.items() if old in fields.config
    }
    if changes.get("intermediate_size") is None:
        changes["intermediate_size"] = 4 * fields.integer("n_embd")
    activation = fields.text("activation_function", "gelu")
    if activation not in _GATED:
        raise UnsupportedError(
            f"{fields.where} asks for an MLP without a gate",
            seen=f"activation_function {activation}",
            remedy=f"Of this family {' and '.join(_GATED)} are run.",
        )
    changes["hidden_act"] = _GATED[activation]
    changes["layer_norm_eps"] = fields.number("layer_norm_epsilon", 1e-5)
    return fields.overlaid(changes)


def _max_positions(fields: Fields, asked: int) -> int:
    """Returns the longest text. Where the base of the rotary positions grows with longer ones, they
    are not run."""
    trained = fields.optional_integer("max_trained_positions")
    grows = fields.optional_number("rotary_scaling_factor") is not None
    return min(asked, trained) if grows and trained is not None else asked


def _config_from_gguf(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    fields.must_be("nomic-bert.attention.causal", False)
    fields.must_be("nomic-bert.attention.head_count_kv", config["num_attention_heads"])
    check_whole_turns(fields, "nomic-bert", config)
    return {"hidden_act": "silu", "type_vocab_size": fields.integer(TYPE_COUNT, 1)}


def _gguf_from_spec(spec: ModelSpec) -> Metadata:
    return {
        "nomic-bert.attention.causal": False,
        TYPE_COUNT: np.uint32(spec.embedding.num_token_types),
    }


NOMIC_BERT = Family(
    model_type="nomic_bert",
    read_spec=read_spec,
    prefixes=("", "bert.", "nomic_bert."),
    linears={
        **fused_modules("encoder.layers.{layer}.attn.Wqkv", QKV_ROLES),
        "o": LinearModule(module="encoder.layers.{layer}.attn.out_proj"),
        "gate": LinearModule(module="encoder.layers.{layer}.mlp.fc12"),
        "up": LinearModule(module="encoder.layers.{layer}.mlp.fc11"),
        "down": LinearModule(module="encoder.layers.{layer}.mlp.fc2"),
    },
    norms={
        "embedding_norm": "emb_ln",
        "attention_sum_norm": "encoder.layers.{layer}.norm1",
        "mlp_sum_norm": "encoder.layers.{layer}.norm2",
    },
    embedding=bert.EMBEDDING,
    token_type_embedding=bert.TOKEN_TYPES,
    config_fields={
        "vocab_size": "vocab_size",
        "hidden_size": "n_embd",
        "num_layers": "n_layer",
        "num_heads": "n_head",
        "mlp_size": "n_inner",
        "max_positions": "n_positions",
        "num_token_types": "type_vocab_size",
    },
    ignorable=(*bert.IGNORABLE, r"(.*\.)?rotary_emb\.inv_freq"),
    gguf=GGUFRows(
        architecture="nomic-bert",
        class_name="NomicBertModel",
        keys=ENCODER_KEYS,
        linears={**LINEARS, **dict.fromkeys(QKV_ROLES, "attn_qkv")},
        norms=POST_NORMS,
        more_config=_config_from_gguf,
        more_metadata=_gguf_from_spec,
    ),
)
