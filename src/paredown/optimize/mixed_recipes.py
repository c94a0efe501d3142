"""Mixed-precision recipes by name: mixed-BITS, such as mixed-4 or mixed-3.5. The name's meaning
depends on the model: the widths that lose least at that average of bits per weight."""

import math
import re
from collections.abc import Sequence

from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.errors import ConfigError
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.mixed_precision import (
    WIDTHS,
    assign_average_bits,
    formats_of_widths,
    measure_choices,
)
from paredown.optimize.sensitivity import WINDOW_TOKENS
from paredown.progress import OnCount

GROUP_SIZE = 128
# The tokens of validation text for each width of each part.
NUM_TOKENS = 512
# Widths are offered from this many bits below the average to this many above.
_NARROWER, _WIDER = 1, 2
_NAME = re.compile(r"mixed-(\d+(?:\.\d+)?)")


def is_mixed(name: str) -> bool:
    """Returns whether it is such a name. Raises ConfigError for one with too few or too many
    bits."""
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    if not WIDTHS[0] <= float(match[1]) <= WIDTHS[-1]:
        raise ConfigError(
            "no mixture of widths has so many bits on average",
            seen=name,
            remedy=f"Ask for {WIDTHS[0]} to {WIDTHS[-1]}: mixed-4, for one.",
        )
    return True


def mixed_recipes(source: Checkpoint, names: Sequence[str], on_progress: OnCount) -> list[Recipe]:
    """Returns the recipes, which round with GPTQ. Losses are those of rounding to nearest,
    measured once for all names. Raises UnsupportedError if groups do not divide the layers'
    columns."""
    averages = [_average_bits(name) for name in names]
    least = math.floor(min(averages)) - _NARROWER
    most = math.ceil(max(averages)) + _WIDER
    specs = formats_of_widths(GROUP_SIZE, [bits for bits in WIDTHS if least <= bits <= most])
    text = choose_validation_text(source, None, NUM_TOKENS, WINDOW_TOKENS)
    found = measure_choices(source, text, specs, RTN(), on_progress)
    return [
        assign_average_bits(found, average).recipe(source, GPTQ(), name)
        for name, average in zip(names, averages, strict=True)
    ]


def _average_bits(name: str) -> float:
    match = _NAME.fullmatch(name)
    assert match is not None
    return float(match[1])
