"""Decides whether a search rounds the output layer too."""

from paredown.formats.table import FORMATS
from paredown.spec.model import ModelSpec
from paredown.spec.weight import bits_per_weight

OUTPUT_FORMAT = "int8"
# Rounding an output layer to 8 bits halves it, so decoding gains at least half of this share.
MIN_OUTPUT_SHARE = 0.1
# The share refers to the smallest of the formats that usually lose little.
_YARDSTICK = "int4-g128"


def output_share(spec: ModelSpec) -> float:
    """Returns the share of a bf16 output layer in the weights that a decode step reads, when the
    other linear layers are int4-g128."""
    head_bytes = 2 * spec.vocab_size * spec.hidden_size
    bits = bits_per_weight(FORMATS[_YARDSTICK], spec.hidden_size)
    return head_bytes / (head_bytes + spec.num_active_linear_parameters() * bits / 8)


def output_note(spec: ModelSpec) -> str:
    """Returns the report's sentence on what was decided for the user, and why."""
    share = output_share(spec)
    did = "rounded too" if share >= MIN_OUTPUT_SHARE else "left in floats at first"
    return (
        f"The output layer was {did}: in bf16 it is {share:.0%} of the weights that an "
        f"{_YARDSTICK} model reads for a token."
    )
