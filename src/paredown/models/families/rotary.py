"""Rotary positions from a config: `rope_theta`, `rope_scaling`, or the newer `rope_parameters`."""

from collections.abc import Mapping
from dataclasses import replace

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.fields import Fields
from paredown.spec.rotary import Rotary

# Transformers' default when a config names no base, for most families.
DEFAULT_THETA = 10_000.0


def read_rotary(fields: Fields, default_theta: float = DEFAULT_THETA, share: float = 1.0) -> Rotary:
    """The config's rotary positions, over `share` of each head. Raises UnsupportedError for a
    scaling rule we do not have, and for another share."""
    parameters = _parameters(fields)
    parameters.must_be("partial_rotary_factor", share)
    fields.must_be("partial_rotary_factor", share)
    return replace(_read_whole(fields, parameters, default_theta), share=share)


def read_rotary_by_kind(
    fields: Fields, default_thetas: Mapping[str, float], theta_fields: Mapping[str, str]
) -> dict[str, Rotary]:
    """The rotary positions of each kind of layer. `rope_parameters` has an object for each; in
    older configs `theta_fields` names the field with the base of a kind, whose positions are never
    scaled, and the other kinds have `rope_theta` and `rope_scaling`."""
    nested = fields.config.get("rope_parameters")
    found = {}
    for kind, theta in default_thetas.items():
        if isinstance(nested, dict) and isinstance(nested.get(kind), dict):
            config = {**fields.config, "rope_parameters": nested[kind]}
            if kind in theta_fields:
                config["rope_scaling"] = None
            own = Fields(config, f"{fields.where} ({kind})")
        elif kind in theta_fields:
            named = fields.config.get(theta_fields[kind])
            own = Fields({} if named is None else {"rope_theta": named}, fields.where)
        else:
            own = fields
        found[kind] = read_rotary(own, theta)
    return found


def _read_whole(fields: Fields, parameters: Fields, default_theta: float) -> Rotary:
    theta = parameters if "rope_theta" in parameters.config else fields
    base = theta.number("rope_theta", default_theta)
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    if kind == "default":
        return Rotary(theta=base)
    if kind == "linear":
        return Rotary(theta=base, scaling="linear", factor=parameters.number("factor"))
    if kind == "llama3":
        return _llama3(fields, parameters, base)
    raise UnsupportedError(
        f"{parameters.where} asks for an unknown rotary scaling",
        seen=kind,
        remedy="Known scalings: default, linear, llama3.",
    )


def _parameters(fields: Fields) -> Fields:
    """The scaling dictionary under whichever name the config has it; `rope_scaling` wins, as in
    Transformers."""
    name = "rope_scaling" if fields.config.get("rope_scaling") else "rope_parameters"
    value = fields.config.get(name) or {}
    if not isinstance(value, dict):
        raise fields.wrong(name, "an object")
    if any(isinstance(entry, dict) for entry in value.values()):
        raise UnsupportedError(
            f"{fields.where} gives layers rotary positions of their own in {name!r}",
            seen=", ".join(value),
            remedy="Only one set of rotary parameters for all layers can be run.",
        )
    return Fields(value, where=f"{fields.where} ({name})")


def _llama3(fields: Fields, parameters: Fields, theta: float) -> Rotary:
    low = parameters.number("low_freq_factor")
    high = parameters.number("high_freq_factor")
    if high <= low:
        raise CheckpointError(
            f"{parameters.where}: high_freq_factor must be above low_freq_factor",
            seen=f"low_freq_factor {low}, high_freq_factor {high}",
            remedy="Correct the fields, or download the checkpoint again.",
        )
    owner = fields if "original_max_position_embeddings" in fields.config else parameters
    return Rotary(
        theta=theta,
        scaling="llama3",
        factor=parameters.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=owner.integer(
            "original_max_position_embeddings", fields.integer("max_position_embeddings")
        ),
    )
