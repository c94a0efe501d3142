"""ModelSpec from a Hugging Face `config.json`, for the families we know."""

from collections.abc import Mapping

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.table import FAMILIES
from paredown.models.text_part import WHOLES
from paredown.models.unread_fields import notes_of_unread
from paredown.spec.attention import Attention
from paredown.spec.model import ModelSpec


def family_from_config(config: Mapping[str, object]) -> Family:
    """Returns the family that `model_type` names, with its names in such a model. Raises
    UnsupportedError for an unknown one."""
    model_type = Fields(config).text("model_type")
    if model_type not in FAMILIES:
        raise UnsupportedError(
            "config.json has an unknown model_type",
            seen=model_type,
            remedy=f"Known model types: {', '.join((*FAMILIES, *WHOLES))}.",
        )
    family = FAMILIES[model_type]
    return family if family.variant is None else family.variant(config)


def spec_from_config(config: Mapping[str, object]) -> ModelSpec:
    """Returns the config's spec. Raises CheckpointError for a missing or bad field, which it names,
    and UnsupportedError for an unknown model type or a variant that the spec cannot express."""
    return read_config(config)[0]


def read_config(config: Mapping[str, object]) -> tuple[ModelSpec, tuple[str, ...]]:
    """Returns the spec, and notes on unknown fields. Raises what `spec_from_config` raises."""
    family, fields = family_from_config(config), Fields(config)
    spec = family.read_spec(fields)
    for layer in spec.layer_counts:
        _check_heads(layer.attention)
    _check_switches(spec)
    fields.pass_over("model_type", "vocab_size")
    # A family that is only costed says for itself what its spec leaves out.
    return spec, () if family.left_out is not None else notes_of_unread(fields, spec, family)


def check_runs(family: Family) -> None:
    """Raises UnsupportedError for a family that can only be costed, not run."""
    if family.left_out is not None:
        raise UnsupportedError(
            "models of this family are costed (inspect, plan, simulate), not run",
            seen=f"model_type {family.model_type}; left out: {family.left_out}",
            remedy="Choose a model of another family.",
        )


def _check_switches(spec: ModelSpec) -> None:
    """Raises UnsupportedError if layers switch their rotary positions for long texts at unequal
    lengths."""
    rotaries = (layer.attention.rotary for layer in spec.layer_counts)
    found = {one.switch_tokens for one in rotaries if one is not None} - {None}
    if len(found) > 1:
        raise UnsupportedError(
            "config.json: longrope changes its frequencies at another length in some layers",
            seen=", ".join(f"{one} tokens" for one in sorted(map(str, found))),
            remedy="Give all layers the same original_max_position_embeddings, or choose another "
            "checkpoint.",
        )


def _check_heads(attention: Attention) -> None:
    """Raises CheckpointError for impossible head counts or sizes."""
    if attention.num_heads % attention.num_kv_heads:
        raise CheckpointError(
            "config.json: the number of attention heads is not a multiple of the key-value heads",
            seen=f"{attention.num_heads} heads, {attention.num_kv_heads} key-value heads",
            remedy="Correct num_key_value_heads, or download the checkpoint again.",
        )
    rotary, head_dim = attention.rotary, attention.head_dim
    if rotary is not None and (head_dim % 2 or rotary.rotated_columns(head_dim) % 2):
        raise CheckpointError(
            "config.json: rotary positions need an even head size",
            seen=f"head_dim {head_dim}, of which {rotary.rotated_columns(head_dim)} are rotated",
            remedy="Correct head_dim, or download the checkpoint again.",
        )
    if rotary is not None and rotary.scaling == "longrope":
        num_pairs = rotary.rotated_columns(head_dim) // 2
        sizes = {len(rotary.short_factors), len(rotary.long_factors)}
        if sizes != {num_pairs}:
            raise CheckpointError(
                "config.json: longrope needs a factor for each pair of columns that is rotated",
                seen=f"{len(rotary.short_factors)} short and {len(rotary.long_factors)} long ones, "
                f"{num_pairs} pairs",
                remedy="Correct short_factor and long_factor, or download the checkpoint again.",
            )
