"""The numbers that a model's layers had in the original, after whole layers were removed. They are
kept in config.json, so that a layer is compared with the one that it was.

    "paredown": {"kept_layers": [0, 2, 3]}
"""

from collections.abc import Mapping
from itertools import pairwise

from paredown.errors import CheckpointError
from paredown.models.paredown_section import KEPT_LAYERS, SECTION, read_section, section_error


def read_kept_layers(config: Mapping[str, object], num_layers: int) -> tuple[int, ...] | None:
    """Returns the original's number of each layer, or None where no layer was removed. Raises
    CheckpointError for anything but increasing numbers, one for each layer."""
    found = read_section(config).get(KEPT_LAYERS)
    if found is None:
        return None
    where = f"{SECTION}.{KEPT_LAYERS}"
    if not isinstance(found, list) or not all(type(one) is int and one >= 0 for one in found):
        raise section_error(f"{where} is not a list of layers", found)
    if len(found) != num_layers or any(later <= one for one, later in pairwise(found)):
        raise section_error(f"{where} must have {num_layers} layers in order", found)
    return tuple(found)


def composed(first: tuple[int, ...] | None, second: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the numbers after two cuts: `second` counts the layers that `first` kept."""
    return second if first is None else tuple(first[layer] for layer in second)


def layer_partners(
    original: tuple[int, ...] | None, num_original: int, own: tuple[int, ...] | None, num_own: int
) -> list[int]:
    """Returns for each layer of a model the layer of `original` that it was, from the kept layers
    and the numbers of layers of both. Raises CheckpointError if that cannot be told."""
    ancestors = tuple(range(num_original)) if original is None else original
    numbers = own
    if own is None or own == original:
        numbers = ancestors if num_own == num_original else None
    if numbers is None or not set(numbers) <= set(ancestors):
        raise CheckpointError(
            "the layers of a model cannot be compared with those of its original",
            seen=f"{num_own} layers, of {num_original}; kept_layers {own} and {original}",
            remedy="Compare with the model that it was made from.",
        )
    return [ancestors.index(number) for number in numbers]
