"""Writes the sizes of a changed spec back into its family's config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.config import family_from_config, spec_from_config
from paredown.models.families.expert_fields import NUM_EXPERTS_FIELDS
from paredown.models.families.family import Family
from paredown.models.families.gated_rotary import FULL, SLIDING
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec


def config_of(
    spec: ModelSpec, source: Mapping[str, object], kept_layers: Sequence[int] | None = None
) -> dict[str, object]:
    """Returns the config `source` with the fields that differ in `spec` replaced. Where layers were
    removed, `kept_layers` has their numbers in `source`. Raises UnsupportedError where the family's
    config cannot express the model."""
    family = family_from_config(source)
    # Heads, and whether there is an output layer beside them, stand in files of their own.
    spec = replace(spec, head=None)
    before = spec_from_config(source)
    if spec.output is None and before.output is not None:
        spec = replace(spec, output=before.output)
    if spec == before:
        return dict(source)
    if kept_layers is not None:
        source = _with_layers(source, family, kept_layers)
    wanted = _own_names(_fields(spec, family), source)
    known = _own_names(_fields(before, family), source)
    changed = {name: value for name, value in wanted.items() if known.get(name) != value}
    # A size that the config leaves to be derived is written only if the derived value would now be
    # wrong.
    for fields in (changed, wanted):
        config = {**source, **fields}
        try:
            if spec_from_config(config) == spec:
                return config
        except (CheckpointError, UnsupportedError):
            continue
    raise UnsupportedError(
        f"config.json of {family.model_type} cannot say what this model is",
        seen=_difference(spec, before),
        remedy="Give all layers the same sizes, those that the family's config has fields for.",
    )


def _own_names(fields: Mapping[str, object], source: Mapping[str, object]) -> dict[str, object]:
    """Returns the fields, the number of experts under the name that `source` has for it."""
    used = [name for name in NUM_EXPERTS_FIELDS if name in source]
    return {
        used[0] if name in NUM_EXPERTS_FIELDS and used else name: value
        for name, value in fields.items()
    }


def _with_layers(
    source: Mapping[str, object], family: Family, kept_layers: Sequence[int]
) -> dict[str, object]:
    """Returns the config with the entries of these layers in its lists of all layers."""
    lists = {name: source.get(name) for name in family.layer_lists}
    return {**source} | {
        name: [one[layer] for layer in kept_layers]
        for name, one in lists.items()
        if isinstance(one, list) and len(one) > max(kept_layers)
    }


def _fields(spec: ModelSpec, family: Family) -> dict[str, object]:
    """Returns the config fields with their values, where the family has them and all layers
    agree."""
    values: dict[str, set[object]] = {
        "vocab_size": {spec.vocab_size},
        "hidden_size": {spec.hidden_size},
        "embedding_size": {spec.hidden_size},
        "num_layers": {spec.num_layers},
        "max_positions": {spec.max_positions},
        "num_token_types": {spec.embedding.num_token_types},
        "is_tied": {spec.is_tied},
    }
    if spec.position_shape is not None:
        values["num_position_rows"] = {spec.position_shape[0]}
    for layer in spec.layer_counts:
        for name, value in _layer_sizes(layer).items():
            values.setdefault(name, set()).add(value)
    found: dict[str, object] = {
        family.config_fields[name]: next(iter(own))
        for name, own in values.items()
        if name in family.config_fields and len(own) == 1
    }
    if "layer_types" in family.config_fields:
        windows = [layer.attention.window for layer in spec.layers]
        found[family.config_fields["layer_types"]] = [
            FULL if window is None else SLIDING for window in windows
        ]
    if "rotary_layers" in family.config_fields:
        found[family.config_fields["rotary_layers"]] = [
            int(layer.attention.rotary is not None) for layer in spec.layers
        ]
    if "expert_step" in family.config_fields:
        # Every layer that the list of dense ones does not name.
        found[family.config_fields["expert_step"]] = 1
    if "dense_layers" in family.config_fields:
        found[family.config_fields["dense_layers"]] = [
            number for number, layer in enumerate(spec.layers) if not layer.has_experts
        ]
    return found


def _layer_sizes(layer: LayerSpec) -> dict[str, object]:
    attention, mlp = layer.attention, layer.mlp
    sizes: dict[str, object] = {
        "num_heads": attention.num_heads,
        "num_kv_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
    }
    if isinstance(mlp, Mlp):
        return sizes | {"mlp_size": mlp.size}
    return sizes | {
        "num_experts": mlp.num,
        "num_experts_per_token": mlp.num_per_token,
        "expert_size": mlp.size,
        "shared_size": mlp.shared_size,
    }


def _difference(spec: ModelSpec, before: ModelSpec) -> str:
    """Describes in words what differs."""
    told = [
        f"{name} {getattr(spec, name)} instead of {getattr(before, name)}"
        for name in ("vocab_size", "hidden_size", "num_layers", "max_positions")
        if getattr(spec, name) != getattr(before, name)
    ]
    sizes = [_layer_sizes(layer) for layer in spec.layers]
    for name, value in _layer_sizes(before.layers[0]).items():
        own = list(dict.fromkeys(one.get(name) for one in sizes))
        if own != [value]:
            told.append(f"{name} {', '.join(map(str, own))} instead of {value}")
    return "; ".join(told) or "another form of its layers"
