"""Granite 4 without routed experts and state-space layers: Granite 3's layer, whose MLP is named
like a shared expert, with gate and up in one module."""

from dataclasses import replace

from paredown.errors import UnsupportedError
from paredown.models.families import gated_rotary
from paredown.models.families.family import LinearModule, fused_modules
from paredown.models.families.fields import Fields
from paredown.models.families.granite import GRANITE, read_granite
from paredown.shown import shown
from paredown.spec.model import ModelSpec

# Transformers' current name for an attention layer, and the one in configs.
_ATTENTION = ("attention", "full_attention")
_MLP = "layers.{layer}.shared_mlp"
# Sizes of the state-space layers, which these models do not have.
_MAMBA = (
    "mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv",
    "mamba_expand", "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "time_step_limit",
)  # fmt: skip


def read_spec(fields: Fields) -> ModelSpec:
    if fields.integer("num_local_experts", minimum=0):
        raise _left_out(fields, "num_local_experts", "mixtures")
    fields.pass_over("num_experts_per_tok", "intermediate_size", *_MAMBA)
    num_layers = fields.num_layers("num_hidden_layers")
    name = "layers_block_type" if "layers_block_type" in fields.config else "layer_types"
    kinds = fields.config.get(name)
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise fields.wrong(name, f"a kind for each of {num_layers} layers")
    if any(kind not in _ATTENTION for kind in kinds):
        raise _left_out(fields, name, "state-space layers")
    own = {"intermediate_size": fields.integer("shared_intermediate_size")}
    spec = replace(read_granite(fields.overlaid(own)), family="granitemoehybrid")
    positions = fields.config.get("position_embedding_type")
    if positions not in (None, "nope"):
        fields.must_be("position_embedding_type", "rope")
        return spec
    layers = (
        replace(layer, attention=replace(layer.attention, rotary=None)) for layer in spec.layers
    )
    return replace(spec, layers=tuple(layers))


def _left_out(fields: Fields, name: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{fields.where} asks for {what}, which are not run in this family",
        seen=f"{name} {shown(fields.config[name], 120)}",
        remedy="Of Granite 4 the dense models with attention in every layer are run; choose one of "
        "them.",
    )


GRANITE_MOE_HYBRID = replace(
    GRANITE,
    model_type="granitemoehybrid",
    read_spec=read_spec,
    linears={
        **gated_rotary.ATTENTION,
        **fused_modules(f"{_MLP}.input_linear", ("gate", "up")),
        "down": LinearModule(module=f"{_MLP}.output_linear"),
    },
    config_fields={
        **gated_rotary.CONFIG_FIELDS,
        "mlp_size": "shared_intermediate_size",
    },
    layer_lists=("layer_types", "layers_block_type"),
    gguf=None,
)
