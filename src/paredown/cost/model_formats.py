"""ModelFormats: the formats of a running model, as far as its cost depends on them."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from paredown.spec.kv import KVDType, KVDTypes, token_bytes
from paredown.spec.run_form import run_form
from paredown.spec.weight import WeightSpec

# The arithmetic unit whose peak is the limit.
Unit = Literal["int8", "bf16", "fp32"]
_BF16 = WeightSpec(dtype="bf16")
# The size of a value between two operations in the native core.
_CORE_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class ZeroWeights:
    """`part` of the linear layers' weights are in matrices of which the share `zeros` is zero."""

    part: float
    zeros: float


@dataclass(frozen=True, kw_only=True)
class ModelFormats:
    """The formats of a model.

    `activation_bytes` is the size of a value between two operations: 4 in the native core
    (float32), 2 on a GPU and in the textbook. `kv_dtype` is one format for all layers, or one for
    each. `short_bf16` says that the native core runs on an instruction set for which it packs bf16
    shorter. `zeros` are those of pruned linear layers, which the core holds as bitmaps where that
    pays (docs/internals/sparse.md).
    """

    linear: WeightSpec = _BF16
    output: WeightSpec = _BF16
    embedding_bits: float = 16
    kv_dtype: KVDTypes = "bf16"
    activation_bytes: int = 4
    short_bf16: bool = False
    zeros: tuple[ZeroWeights, ...] = ()

    @property
    def name(self) -> str:
        head = "" if self.output == self.linear else f", output {self.output.name}"
        return f"{self.linear_name}{head}, KV {self.kv_name}"

    @property
    def linear_name(self) -> str:
        """A name for people: int8, or int8 with 50% zeros."""
        share = sum(one.part * one.zeros for one in self.zeros)
        return f"{self.linear.name} with {share:.0%} zeros" if share else self.linear.name

    @property
    def kv_name(self) -> str:
        """A name for people: bf16, or 2 bf16 + 28 int4 where layers differ."""
        if isinstance(self.kv_dtype, str):
            return self.kv_dtype
        return " + ".join(f"{count} {name}" for name, count in Counter(self.kv_dtype).items())

    def weight_bytes(self, weights: WeightSpec, num_columns: int) -> Fraction:
        """Returns the bytes of one weight in a row of `num_columns`, with its share of scales and
        zero points."""
        form = run_form(weights, num_columns)
        return Fraction(form.bits_per_weight(num_columns, short_bf16=self.short_bf16)) / 8

    def linear_bytes(self, num_columns: int) -> Fraction:
        """Returns the bytes that a linear layer's weight takes on average, with its share of scales
        and with zeros as bitmaps. Only the native core has those."""
        dense = self.weight_bytes(self.linear, num_columns)
        if self.activation_bytes != _CORE_BYTES:
            return dense
        form = run_form(self.linear, num_columns)
        saved = sum(
            one.part * form.bitmap_bits_saved(one.zeros, short_bf16=self.short_bf16)
            for one in self.zeros
        )
        return dense - Fraction(saved) / 8

    @property
    def kv_dtypes(self) -> tuple[KVDType, ...]:
        """The distinct formats of keys and values."""
        if isinstance(self.kv_dtype, str):
            return (self.kv_dtype,)
        return tuple(dict.fromkeys(self.kv_dtype))


def unit_of(weights: WeightSpec, activation_bytes: int) -> Unit:
    """Returns the arithmetic in which our core multiplies with such weights. Where values between
    operations take two bytes (a GPU), only float32 weights are multiplied in float32."""
    if weights.activations.startswith("int"):
        return "int8"
    if weights.activations == "bf16" or (activation_bytes == 2 and weights.dtype != "fp32"):
        return "bf16"
    return "fp32"


def kv_element_bytes(kv_dtype: KVDType, head_dim: int) -> Fraction:
    """Returns the bytes of one number of a key or value, with its share of the head's scale."""
    return Fraction(token_bytes(kv_dtype, head_dim), head_dim)
