"""SmolLM3: Llama's layer, without rotary positions in every fourth layer (arXiv 2501.18795)."""

from dataclasses import replace

from paredown.errors import CheckpointError
from paredown.models.families import gated_rotary
from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import (
    FULL,
    SLIDING,
    FamilyTraits,
    layer_kinds,
    read_gated_rotary,
)
from paredown.models.families.gguf_rows import GGUFRows
from paredown.models.families.llama import LLAMA
from paredown.shown import quoted
from paredown.spec.model import ModelSpec

_INTERVAL = 4
_THETA = 2_000_000.0


def read_spec(fields: Fields) -> ModelSpec:
    attention_bias = fields.flag("attention_bias", False)
    traits = FamilyTraits(
        family="smollm3",
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias", False),
        default_num_kv_heads=4,
        default_theta=_THETA,
    )
    spec = read_gated_rotary(fields, traits)
    turned = _turned_layers(fields, spec.num_layers)
    window = None
    if fields.flag("use_sliding_window", False):
        window = fields.optional_integer("sliding_window")
    else:
        fields.pass_over("sliding_window")
    usual = [FULL if is_turned or window is None else SLIDING for is_turned in turned]
    kinds = layer_kinds(fields, spec.num_layers, usual)
    layers = tuple(
        replace(
            layer,
            attention=replace(
                layer.attention,
                rotary=layer.attention.rotary if is_turned else None,
                window=window if kind == SLIDING else None,
            ),
        )
        for layer, is_turned, kind in zip(spec.layers, turned, kinds, strict=True)
    )
    tied = fields.flag("tie_word_embeddings", True)
    return replace(spec, layers=layers, output=replace(spec.present_output, is_tied=tied))


def _turned_layers(fields: Fields, num_layers: int) -> list[bool]:
    """Returns for each layer whether it has rotary positions: where `no_rope_layers` has a 1, else
    in all but every n-th layer. Raises CheckpointError."""
    listed = fields.config.get("no_rope_layers")
    if listed is None:
        interval = fields.integer("no_rope_layer_interval", _INTERVAL)
        return [(number + 1) % interval != 0 for number in range(num_layers)]
    fields.pass_over("no_rope_layer_interval")
    if not isinstance(listed, list) or len(listed) < num_layers or not set(listed) <= {0, 1}:
        raise CheckpointError(
            f"{fields.where}: no_rope_layers needs a 0 or a 1 for each layer",
            seen=quoted(listed, 80),
            remedy="Correct the field, or download the checkpoint again.",
        )
    return [bool(one) for one in listed[:num_layers]]


SMOLLM3 = replace(
    LLAMA,
    model_type="smollm3",
    read_spec=read_spec,
    config_fields={
        **gated_rotary.CONFIG_FIELDS,
        "layer_types": "layer_types",
        "rotary_layers": "no_rope_layers",
    },
    layer_lists=("layer_types", "no_rope_layers"),
    gguf=GGUFRows(
        architecture="smollm3",
        class_name="SmolLM3ForCausalLM",
        told_by={"attention_bias": "q", "mlp_bias": "up"},
        is_paired=True,
    ),
)
