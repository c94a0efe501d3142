"""What a folder asks the inputs of its linear layers to be rounded to, where its formats leave that
open: `"paredown": {"activations": "int16_group"}` in config.json, which other programs pass over.
"""

from collections.abc import Mapping
from typing import cast, get_args

from paredown.errors import CheckpointError
from paredown.spec.weight import ActivationDType

FIELD = "paredown"
_KEY = "activations"


def stored_activations(config: Mapping[str, object]) -> ActivationDType | None:
    """The inputs that a config.json asks for; None: those of its formats. Raises CheckpointError
    for what is none, and for a field that this version does not know."""
    section = config.get(FIELD)
    if section is None:
        return None
    known = get_args(ActivationDType)
    if not isinstance(section, dict) or set(section) - {_KEY} or section.get(_KEY) not in known:
        raise CheckpointError(
            f'"{FIELD}" of config.json asks for what this version does not know',
            seen=repr(section)[:80],
            remedy=f'It holds "{_KEY}", one of {", ".join(known)}; without the field, inputs are '
            "read as the formats say.",
        )
    return cast("ActivationDType", section[_KEY])


def with_activations(
    config: Mapping[str, object], activations: ActivationDType | None
) -> dict[str, object]:
    """The config of a folder whose inputs are to be rounded to that."""
    others = {name: value for name, value in config.items() if name != FIELD}
    return others if activations is None else others | {FIELD: {_KEY: activations}}
