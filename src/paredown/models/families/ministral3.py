"""Ministral 3: Mistral's layer with YaRN, and queries that are scaled by their position (Llama
4)."""

from dataclasses import replace

from paredown.models.families.fields import Fields
from paredown.models.families.gated_rotary import FamilyTraits, read_gated_rotary
from paredown.models.families.mistral import MISTRAL
from paredown.models.families.rotary import original_max_positions, rotary_parameters
from paredown.spec.attention import QueryTemperature
from paredown.spec.model import ModelSpec

# Transformers' rotary parameters for a config without any.
_DEFAULT_ROTARY = {
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def read_spec(fields: Fields) -> ModelSpec:
    if not (fields.config.get("rope_scaling") or fields.config.get("rope_parameters")):
        fields = fields.overlaid({"rope_parameters": _DEFAULT_ROTARY})
    parameters = rotary_parameters(fields)
    variant = FamilyTraits(
        family="ministral3",
        default_num_kv_heads=8,
        default_head_dim=128,
        default_norm_eps=1e-5,
        default_theta=1_000_000.0,
        sliding_window=fields.optional_integer("sliding_window"),
    )
    temperature = QueryTemperature(
        beta=parameters.number("llama_4_scaling_beta"),
        num_positions=original_max_positions(fields, parameters),
    )
    spec = read_gated_rotary(fields, variant)
    return replace(
        spec,
        layers=tuple(
            replace(layer, attention=replace(layer.attention, temperature=temperature))
            for layer in spec.layers
        ),
    )


# No GGUF architecture that we read or write scales queries by position.
MINISTRAL3 = replace(MISTRAL, model_type="ministral3", read_spec=read_spec, gguf=None)
