"""Writes a recipe file with the widths that lose least under a budget
(docs/methods/mixed_precision.md)."""

from dataclasses import dataclass
from pathlib import Path

from paredown.compress.methods import QUANTIZERS
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe_file import write_recipe
from paredown.errors import ConfigError, OutputError
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.jobs.float_source import FromQuantized, float_source
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.mixed_precision import (
    Assignment,
    assign_average_bits,
    assign_bytes,
    formats_of_widths,
    measure_choices,
)
from paredown.optimize.sensitivity import WINDOW_TOKENS
from paredown.progress import OnCount

DEFAULT_BITS = 4.0
DEFAULT_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class MixedConfig:
    """`average_bits`  the budget: bits of codes per weight of the linear layers
    `max_bytes`     another form of the budget: bytes of the linear layers, including scales and
                    zero points
    `group_size`    32, 64 or 128
    `method`        the method that the recipe names; losses are those of rounding to nearest
    `with_output`   whether to include the output layer; otherwise it stays in floats
    `text`          a UTF-8 file to predict; None takes the validation split of the classic books
                    under $PAREDOWN_DATA, else a text that the model samples
    `num_tokens`    how many of its tokens are predicted
    """

    average_bits: float = DEFAULT_BITS
    max_bytes: int | None = None
    group_size: int = 128
    method: str = "gptq"
    with_output: bool = False
    text: Path | None = None
    num_tokens: int = DEFAULT_TOKENS


def write_mixed_recipe(
    model: Checkpoint | FromQuantized | Path | str | None,
    output: Path,
    config: MixedConfig,
    on_progress: OnCount | None = None,
) -> Assignment:
    """Measures each linear layer's loss at 2 to 8 bits, and writes the widths with the least total
    loss under the budget to the recipe file `output`.

    Raises ConfigError for a name that does not end in .yaml, a group size or method without such a
    format, and a budget that nothing fits. Raises OutputError for a file that exists, and
    UnsupportedError for a model that is already compressed or cannot have such groups.
    """
    _check_output(output)
    specs, quantizer = formats_of_widths(config.group_size), QUANTIZERS[config.method]()
    for spec in specs:
        quantizer.check(spec)
    with float_source(model) as source:
        checkpoint = source.floats
        text = choose_validation_text(checkpoint, config.text, config.num_tokens, WINDOW_TOKENS)
        found = measure_choices(
            checkpoint, text, specs, RTN(), on_progress, with_output=config.with_output
        )
        if config.max_bytes is not None:
            assignment = assign_bytes(found, config.max_bytes)
        else:
            assignment = assign_average_bits(found, config.average_bits)
        write_recipe(assignment.recipe(checkpoint, quantizer, output.stem), output)
    return assignment


def _check_output(output: Path) -> None:
    if output.suffix not in (".yaml", ".yml"):
        raise ConfigError(
            "a recipe file's name ends in .yaml",
            seen=output,
            remedy=f"Name it {output.with_suffix('.yaml')}.",
        )
    if output.exists():
        raise OutputError(f"{output} exists already", seen="a file", remedy="Choose another name.")
