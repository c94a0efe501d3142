"""Handles config.json fields that the family's reader did not ask for: it ignores, notes or refuses
them.

Most of Transformers' config classes use the same field for the same thing, and each class ignores
fields that it does not have. If such a field was not read here and has more than its neutral value,
the config describes a model that neither program runs.
"""

import re
from collections.abc import Mapping
from fnmatch import translate

from paredown.errors import UnsupportedError
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.known_fields import HARMLESS, NEUTRAL, ROTARY_HARMLESS, SWITCHES
from paredown.models.families.spec_values import AGREES
from paredown.shown import quoted
from paredown.spec.model import ModelSpec

# Compiled into one pattern: a config may have a hundred thousand fields.
_HARMLESS = re.compile("|".join(map(translate, HARMLESS)))
_ROTARY = ("rope_scaling.", "rope_parameters.")


def notes_of_unread(fields: Fields, spec: ModelSpec, family: Family) -> tuple[str, ...]:
    """Returns a note on the unknown fields. Raises UnsupportedError for a field that would change
    the arithmetic."""
    unknown = []
    for name, value in fields.config.unread().items():
        last = name.rpartition(".")[2]
        if value is None or is_harmless(last):
            continue
        if name in family.noted and not is_neutral(name, value, spec, fields.config.plain()):
            unknown.append(name)
        elif name.startswith(_ROTARY) and (last in ROTARY_HARMLESS or last not in NEUTRAL):
            # Belongs to another scaling, or to none.
            unknown += [] if last in ROTARY_HARMLESS else [name]
        elif is_known(last):
            if not is_neutral(last, value, spec, fields.config.plain()):
                raise _not_applied(fields.where, name, value, spec)
        elif not last.startswith("_"):
            unknown.append(name)
    if not unknown:
        return ()
    return (f"passed over, not known here: {', '.join(sorted(unknown))} of {fields.where}",)


def is_harmless(name: str) -> bool:
    """Returns whether the field never changes a result."""
    return _HARMLESS.match(name) is not None


def is_known(name: str) -> bool:
    """Returns whether the field is one of Transformers that changes results in some family."""
    return name in AGREES or name in NEUTRAL or name in SWITCHES


def is_neutral(name: str, value: object, spec: ModelSpec, config: Mapping[str, object]) -> bool:
    """Returns whether the field only repeats what the spec says anyway."""
    if value is None or (name in NEUTRAL and value in NEUTRAL[name]):
        return True
    if name in SWITCHES and all(config.get(switch) in (None, 0, 1) for switch in SWITCHES[name]):
        return True
    return name in AGREES and AGREES[name](spec, value, config)


def _not_applied(where: str, name: str, value: object, spec: ModelSpec) -> UnsupportedError:
    return UnsupportedError(
        f"{where} sets {name!r}, which is not applied to the family {spec.family!r} here",
        seen=quoted(value, 80),
        remedy=f"Take {name} out of {where} if the model was trained without it, or set the "
        "model_type of a family that has it.",
    )
