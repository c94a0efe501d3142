"""Reads rotary positions from a config: `rope_theta` and `rope_scaling`, or the newer
`rope_parameters`, which may hold one object for each kind of layer."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.fields import Fields
from paredown.spec.rotary import Rotary

# Transformers' default base for most families.
DEFAULT_THETA = 10_000.0


def read_rotary(fields: Fields, default_theta: float = DEFAULT_THETA, share: float = 1.0) -> Rotary:
    """Returns the config's rotary positions, over `share` of each head. Raises UnsupportedError for
    an unknown scaling rule, for another share, and for rules that differ between layers."""
    parameters = rotary_parameters(fields)
    if parameters.config.objects():
        raise UnsupportedError(
            f"{parameters.where} gives layers rotary positions of their own",
            seen=", ".join(parameters.config),
            remedy="Only one set of rotary parameters for all layers can be run in this family.",
        )
    parameters.must_be("partial_rotary_factor", share)
    fields.must_be("partial_rotary_factor", share)
    return rotary_of(fields, parameters, default_theta, share)


def rotary_share(fields: Fields, default: float) -> float:
    """Returns the share of a head that is rotated, from whichever field states it. Raises
    CheckpointError for a share above 1."""
    name = "partial_rotary_factor"
    parameters = rotary_parameters(fields)
    owner = parameters if name in parameters.config else fields
    share = owner.number(name, default)
    if share > 1:
        raise owner.wrong(name, "a share of a head, at most 1")
    return share


def rotary_parameters(fields: Fields) -> Fields:
    """Returns the scaling parameters from either field; `rope_scaling` wins, as in Transformers."""
    name, other = "rope_scaling", "rope_parameters"
    if not fields.config.get(name):
        name, other = other, name
    fields.pass_over(other)
    value = fields.config.get(name) or {}
    if not isinstance(value, Mapping):
        raise fields.wrong(name, "an object")
    return Fields(value, where=f"{fields.where} ({name})")


def rotary_of(
    fields: Fields, parameters: Fields, default_theta: float, share: float = 1.0
) -> Rotary:
    """Returns the positions that these parameters describe; `fields` are those of the whole config.
    Raises UnsupportedError for an unknown scaling rule."""
    theta = fields
    if "rope_theta" in parameters.config:
        fields.pass_over("rope_theta")
        theta = parameters
    plain = Rotary(theta=theta.number("rope_theta", default_theta), share=share)
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    if kind not in _SCALINGS:
        raise UnsupportedError(
            f"{parameters.where} asks for an unknown rotary scaling",
            seen=kind,
            remedy=f"Known scalings: {', '.join(_SCALINGS)}.",
        )
    return _SCALINGS[kind](fields, parameters, plain)


def read_rotary_by_kind(
    fields: Fields, default_thetas: Mapping[str, float], theta_fields: Mapping[str, str]
) -> dict[str, Rotary]:
    """Returns the rotary positions of each kind of layer, with `rope_parameters` holding one object
    per kind. In older configs `theta_fields` names the field with a kind's base, and those
    positions are never scaled; the other kinds use `rope_theta` and `rope_scaling`."""
    nested = fields.config.get("rope_parameters")
    found = {}
    for kind, theta in default_thetas.items():
        if isinstance(nested, Mapping) and isinstance(nested.get(kind), Mapping):
            changes = {"rope_parameters": nested[kind]}
            if kind in theta_fields:
                changes["rope_scaling"] = None
            own = Fields(fields.config.overlaid(changes), f"{fields.where} ({kind})")
        elif kind in theta_fields:
            named = fields.config.get(theta_fields[kind])
            own = Fields({} if named is None else {"rope_theta": named}, fields.where)
        else:
            own = fields
        found[kind] = read_rotary(own, theta)
    return found


def original_max_positions(fields: Fields, parameters: Fields) -> int:
    """Returns the context that the model was trained on before it was stretched. A field of the
    whole config wins, as in Transformers."""
    name = "original_max_position_embeddings"
    owner = fields if fields.config.get(name) is not None else parameters
    if owner.config.get(name) is None:
        return fields.integer("max_position_embeddings")
    return owner.integer(name)


def _default(_fields: Fields, _parameters: Fields, plain: Rotary) -> Rotary:
    return plain


def _dynamic(_fields: Fields, parameters: Fields, plain: Rotary) -> Rotary:
    """Returns the plain positions. Dynamic NTK changes nothing up to `max_position_embeddings`
    tokens. Longer texts are not run, because a key's rotation would depend on when it was computed.
    """
    parameters.number("factor")
    return plain


def _linear(_fields: Fields, parameters: Fields, plain: Rotary) -> Rotary:
    return replace(plain, scaling="linear", factor=parameters.number("factor"))


def _yarn(fields: Fields, parameters: Fields, plain: Rotary) -> Rotary:
    """Returns YaRN as in Transformers. A given attention factor wins; else it follows from both
    mscales, or from `factor` alone unless both are given."""
    original = original_max_positions(fields, parameters)
    factor = _stretch(fields, parameters, original)
    if parameters.config.get("attention_factor") is not None:
        attention_factor = parameters.number("attention_factor")
    else:
        scales = [_optional(parameters, name) for name in ("mscale", "mscale_all_dim")]
        above, below = scales if all(scales) else (1.0, 0.0)
        attention_factor = _mscale(factor, above) / _mscale(factor, below)
    return replace(
        plain,
        scaling="yarn",
        factor=factor,
        attention_factor=attention_factor,
        original_max_positions=original,
        beta_fast=_optional(parameters, "beta_fast") or 32.0,
        beta_slow=_optional(parameters, "beta_slow") or 1.0,
        truncate=parameters.flag("truncate", True),
    )


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _optional(parameters: Fields, name: str) -> float:
    """Reads a number; an absent, null or zero field returns 0."""
    return parameters.number(name) if parameters.config.get(name) else 0.0


def _stretch(fields: Fields, parameters: Fields, original: int) -> float:
    """Returns `factor`, or the ratio of the context to the original one."""
    if parameters.config.get("factor") is not None:
        return parameters.number("factor")
    return fields.integer("max_position_embeddings") / original


def _longrope(fields: Fields, parameters: Fields, plain: Rotary) -> Rotary:
    original = original_max_positions(fields, parameters)
    factor = _stretch(fields, parameters, original)
    if parameters.config.get("attention_factor") is not None:
        attention_factor = parameters.number("attention_factor")
    elif factor <= 1 or original == 1:
        attention_factor = 1.0
    else:
        attention_factor = math.sqrt(1 + math.log(factor) / math.log(original))
    return replace(
        plain,
        scaling="longrope",
        attention_factor=attention_factor,
        original_max_positions=original,
        short_factors=_factors(parameters, "short_factor"),
        long_factors=_factors(parameters, "long_factor"),
    )


def _factors(parameters: Fields, name: str) -> tuple[float, ...]:
    values = parameters.config.get(name)
    if not isinstance(values, list) or not values:
        raise parameters.wrong(name, "a list of numbers above zero")
    entries = Fields({f"{name}[{i}]": value for i, value in enumerate(values)}, parameters.where)
    return tuple(entries.number(entry) for entry in entries.config)


def _llama3(fields: Fields, parameters: Fields, plain: Rotary) -> Rotary:
    low = parameters.number("low_freq_factor")
    high = parameters.number("high_freq_factor")
    if high <= low:
        raise CheckpointError(
            f"{parameters.where}: high_freq_factor must be above low_freq_factor",
            seen=f"low_freq_factor {low}, high_freq_factor {high}",
            remedy="Correct the fields, or download the checkpoint again.",
        )
    return replace(
        plain,
        scaling="llama3",
        factor=parameters.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=original_max_positions(fields, parameters),
    )


_SCALINGS: Mapping[str, Callable[[Fields, Fields, Rotary], Rotary]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    # Its name in Phi-3's first configs.
    "su": _longrope,
}
