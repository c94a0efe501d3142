"""The section of config.json that holds what no format has a place for. Other programs ignore it.

    "paredown": {"activations": ..., "kept_layers": ..., "pruned": ...}

Each key has a file that reads it: activations stored_inputs.py, kept_layers kept_layers.py, pruned
the record of what pruning did to each module.
"""

from collections.abc import Mapping

from paredown.errors import CheckpointError
from paredown.shown import quoted

SECTION = "paredown"
ACTIVATIONS, KEPT_LAYERS, PRUNED = "activations", "kept_layers", "pruned"
_KEYS = (ACTIVATIONS, KEPT_LAYERS, PRUNED)


def read_section(config: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the section, empty where there is none. Raises CheckpointError for anything but an
    object of known keys."""
    section = config.get(SECTION)
    if section is None:
        return {}
    if not isinstance(section, Mapping) or not section or not set(section) <= set(_KEYS):
        raise section_error(f"{SECTION} holds something else", section)
    return section


def with_key(config: Mapping[str, object], key: str, value: object) -> dict[str, object]:
    """Returns the config with `value` in the section's `key`, or without that key if it is None;
    an empty section is left out."""
    section = {name: own for name, own in read_section(config).items() if name != key}
    if value is not None:
        section[key] = value
    made = {name: own for name, own in config.items() if name != SECTION}
    return made | ({SECTION: section} if section else {})


def section_error(what: str, seen: object, ending: str = "") -> CheckpointError:
    """Makes the error for a section that cannot be read. `ending` says what happens without."""
    return CheckpointError(
        f"config.json: {what}",
        seen=quoted(seen, 80),
        remedy=f'Take "{SECTION}" out{ending or "; the model runs without it"}.',
    )
