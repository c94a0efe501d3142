"""The record in config.json of the linear modules that were pruned, by the pattern of their zeros.

    "paredown": {"pruned": {"2of4": "all"}}
    "paredown": {"pruned": {"50": ["model.layers.0.mlp.down_proj", ...]}}

Whoever changes such weights later keeps the zeros (compress/prune/held_zeros.py).
"""

import re
from collections.abc import Collection, Mapping

from paredown.models.paredown_section import PRUNED, SECTION, read_section, section_error, with_key

_ALL = "all"
# Patterns as compress/prune/pattern.py names them.
_PERCENT = re.compile(r"\d{1,2}(\.\d{1,3})?")
_N_OF_M = re.compile(r"(\d{1,3})of(\d{1,3})")


def read_pruned(config: Mapping[str, object], modules: Collection[str]) -> dict[str, str]:
    """Returns the pattern of each pruned module; `modules` are the linear ones of the layers, for
    "all". Raises CheckpointError for another field than shown above."""
    asked = read_section(config).get(PRUNED)
    if asked is None:
        return {}
    where = f"{SECTION}.{PRUNED}"
    if not isinstance(asked, dict):
        raise section_error(f"{where} is not an object", asked)
    found: dict[str, str] = {}
    for pattern, names in asked.items():
        if names == _ALL:
            names = list(modules)
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise section_error(f'{where}.{pattern} is neither "{_ALL}" nor a list', names)
        if strangers := [name for name in names if name in found]:
            raise section_error(f"{where} names modules twice", strangers[:3])
        found |= dict.fromkeys(names, str(pattern))
    return found


def zeros_share(pattern: str) -> float:
    """Returns the share of zeros that a recorded pattern stands for; 0 for an unknown one."""
    n_of_m = _N_OF_M.fullmatch(pattern)
    if n_of_m is not None:
        n, m = int(n_of_m[1]), int(n_of_m[2])
        return 1 - n / m if 0 < n <= m else 0.0
    return float(pattern) / 100 if _PERCENT.fullmatch(pattern) else 0.0


def with_pruned(
    config: Mapping[str, object], pruned: Mapping[str, str], modules: Collection[str]
) -> dict[str, object]:
    """Returns the config with this record in place of any other; `modules` as in `read_pruned`."""
    record: dict[str, object] = {}
    for pattern in dict.fromkeys(pruned.values()):
        names = [name for name, own in pruned.items() if own == pattern]
        record[pattern] = _ALL if set(names) == set(modules) else names
    return with_key(config, PRUNED, record or None)
