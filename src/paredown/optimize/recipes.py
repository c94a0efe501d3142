"""Which recipes are tried when none are named."""

from dataclasses import dataclass

from paredown.compress.recipe_names import OUTPUT_MARK
from paredown.formats.table import FORMATS
from paredown.spec.model import ModelSpec
from paredown.spec.weight import bits_per_weight

# From large to small, a step of about a bit each; --formats tries any other.
DEFAULT_FORMATS = (
    "bf16",
    "fp8",
    "int8",
    "w8a8",
    "int6-g128",
    "int5-g64",
    "int4-g32",
    "int4-g128",
)
# Tried with the output layer in OUTPUT_FORMAT too, where that is a large part of the weights read.
WITH_OUTPUT = ("int8", "w8a8", "int6-g128", "int4-g128", "gptq-int4-g128")
# Methods, each where it wins most over round to nearest. Not among them: AQLM, which takes minutes
# even for small models, and LLM.int8(), whose mixed product the native core does not have.
METHODS = (
    "smoothquant-w8a8",
    "awq-int4-g128",
    "gptq-int4-g128",
    "gptq-w4a8-g32-qoq",
    "mixed-4",
    "hqq-int3-g64-asym",
    "gptq-int3-g64-asym",
)
OUTPUT_FORMAT = "int8"
# Rounding an output layer to 8 bits halves it, so that decoding wins at least half of this share.
MIN_OUTPUT_SHARE = 0.1
# What the share is taken of: the smallest of the formats that usually lose little.
_YARDSTICK = "int4-g128"


@dataclass(frozen=True, kw_only=True)
class Search:
    """`output_share` is that of a bf16 output layer in the weights that a decode step reads when
    the other linear layers are int4-g128."""

    recipes: tuple[str, ...]
    output_share: float

    @property
    def note(self) -> str:
        """For the report: what was decided for the user, and why."""
        what = f"{OUTPUT_MARK}{OUTPUT_FORMAT} (the output layer in {OUTPUT_FORMAT} too)"
        why = (
            f"in bf16 it is {self.output_share:.0%} of the weights that an {_YARDSTICK} model "
            "reads for a token"
        )
        tried = self.output_share >= MIN_OUTPUT_SHARE
        return f"{what} was {'tried' if tried else 'not tried'}: {why}."


def default_search(spec: ModelSpec) -> Search:
    """Every default format, the methods, and some of them with a quantized output layer where that
    layer is a large part of what a decode step reads."""
    share = output_share(spec)
    recipes: tuple[str, ...] = DEFAULT_FORMATS + METHODS
    if share >= MIN_OUTPUT_SHARE:
        recipes += tuple(f"{name}{OUTPUT_MARK}{OUTPUT_FORMAT}" for name in WITH_OUTPUT)
    return Search(recipes=recipes, output_share=share)


def output_share(spec: ModelSpec) -> float:
    """See Search."""
    head_bytes = 2 * spec.vocab_size * spec.hidden_size
    bits = bits_per_weight(FORMATS[_YARDSTICK], spec.hidden_size)
    return head_bytes / (head_bytes + spec.num_active_linear_parameters() * bits / 8)
