"""Simulates rounding of activations (docs/methods/activations.md): floats in, floats on a grid
out.

Shapes: T rows (tokens; of keys and values, tokens and heads), I columns, G groups of columns, C
columns of a group. A grid has codes q, a scale s and a zero point z; q stands for (q - z) * s. s
and z are found from the values alone (dynamic) or given (static). With M the largest magnitude
under a scale, and h = 2^(b-1) - 1:

    intB symmetric    s = M / h, q = round(clamp(x * (h / M))), z = 0    as the native kernels do
    intB asymmetric   s = (max - min) / (2^b - 1), z = round(-2^(b-1) - min / s), 0 counted in
    int1 symmetric    q = 1 or -1, s = mean |x|                          (arXiv 1603.05279)
    fp8               s = M / 448 (e4m3) or M / 57344 (e5m2), q = x / s to the nearest such number
    fp16, bf16        q = x to the nearest such number, clamped to the largest; s = 1

Integer codes lie in [-2^(b-1), 2^(b-1) - 1]; all ties round to even.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from paredown.errors import ConfigError
from paredown.formats.e4m3 import MAX_FP8
from paredown.formats.floating import MAX_FINITE
from paredown.formats.fp8_e5m2 import MAX_E5M2
from paredown.spec.weight import ActivationDType, WeightSpec

NumberDType = Literal[
    "int1",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "int8",
    "fp8_e4m3",
    "fp8_e5m2",
    "fp16",
    "bf16",
]
NUMBER_DTYPES: tuple[NumberDType, ...] = get_args(NumberDType)
# The values that share a scale: the whole tensor, a row, or a group of a row's columns.
Granularity = Literal["tensor", "token", "group"]

# The largest code of groups whose scale is a power of two (csrc/kernels/linear/prepare.h).
_LARGEST_POWER_CODE = 120

_TORCH_DTYPES: dict[NumberDType, torch.dtype] = {
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
_LARGEST: dict[NumberDType, float] = {
    "fp8_e4m3": MAX_FP8,
    "fp8_e5m2": MAX_E5M2,
    "fp16": MAX_FINITE["fp16"],
    "bf16": MAX_FINITE["bf16"],
}
# Half a step above the largest number: from there on the nearest number would be another.
_REACH: dict[NumberDType, float] = {
    "fp8_e4m3": 464.0,
    "fp8_e5m2": 61440.0,
    "fp16": 65520.0,
    "bf16": (2 - 2.0**-8) * 2.0**127,
}
_GRID_NAME = re.compile(
    r"(?P<integer>int[1-8])-(?:(?P<share>tensor|token)|g(?P<size>[1-9]\d*))(?P<asym>-asym)?"
    r"|(?P<small>fp8_e4m3|fp8_e5m2)-(?:(?P<float_share>tensor|token)|g(?P<float_size>[1-9]\d*))"
    r"|fp16|bf16"
)


@dataclass(frozen=True, kw_only=True)
class ActivationGrid:
    """A grid for activations. `group_size` columns share a scale if `granularity` is "group"; a
    last group may be shorter. fp16 and bf16 have no scales, and floats are symmetric."""

    dtype: NumberDType = "int8"
    granularity: Granularity = "token"
    group_size: int | None = None
    symmetric: bool = True

    def __post_init__(self) -> None:
        assert self.dtype in NUMBER_DTYPES, self.dtype
        assert (self.granularity == "group") == (self.group_size is not None), self
        assert self.symmetric or self.is_integer, self

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith("int")

    @property
    def has_scales(self) -> bool:
        return self.is_integer or self.dtype.startswith("fp8")

    @property
    def bits(self) -> int:
        return int(self.dtype[3:]) if self.is_integer else torch.finfo(self._torch_dtype).bits

    @property
    def code_range(self) -> tuple[float, float]:
        """The smallest and the largest code."""
        if not self.is_integer:
            return -_LARGEST[self.dtype], _LARGEST[self.dtype]
        if self.is_sign:
            return -1.0, 1.0
        half = float(1 << (self.bits - 1))
        return -half, half - 1

    @property
    def is_sign(self) -> bool:
        return self.dtype == "int1" and self.symmetric

    @property
    def name(self) -> str:
        """The grid's name: 'int8-token', 'int4-g128-asym', 'fp8_e4m3-tensor', 'fp16', ..."""
        if not self.has_scales:
            return self.dtype
        share = f"g{self.group_size}" if self.granularity == "group" else self.granularity
        return f"{self.dtype}-{share}" + ("" if self.symmetric else "-asym")

    @property
    def _torch_dtype(self) -> torch.dtype:
        return _TORCH_DTYPES[self.dtype]

    def to_number(self, scaled: Tensor) -> Tensor:
        """Returns the nearest code within the range."""
        low, high = self.code_range
        if self.is_sign:
            return torch.where(scaled < 0, -1.0, 1.0).to(scaled.dtype)
        if self.is_integer:
            return scaled.clamp(low, high).round()
        # float64 is converted to float32 first, since the casts to 8 bits need that.
        return scaled.clamp(low, high).float().to(self._torch_dtype).to(scaled.dtype)

    def is_beyond(self, scaled: Tensor) -> Tensor:
        """Returns which values were clamped to the range."""
        low, high = self.code_range
        if self.is_sign:
            return torch.zeros_like(scaled, dtype=torch.bool)
        if self.is_integer:
            rounded = scaled.round()
            return (rounded < low) | (rounded > high)
        magnitudes, reach = scaled.abs(), _REACH[self.dtype]
        # At half a step e4m3 rounds to its largest number, which is even; the others do not.
        return magnitudes > reach if self.dtype == "fp8_e4m3" else magnitudes >= reach


def parse_grid(name: str) -> ActivationGrid:
    """Returns the grid of that name. Raises ConfigError."""
    found = _GRID_NAME.fullmatch(name)
    if found is None:
        raise ConfigError(
            "there is no such grid of activations",
            seen=name,
            remedy="Give int1 to int8, fp8_e4m3 or fp8_e5m2, then -tensor, -token or -gN, and for "
            "integers -asym if wanted (int8-token, int4-g128-asym); or fp16, bf16.",
        )
    parts = found.groupdict()
    size = parts["size"] or parts["float_size"]
    share = parts["share"] or parts["float_share"]
    return ActivationGrid(
        dtype=cast(NumberDType, parts["integer"] or parts["small"] or name),
        granularity="group" if size else cast(Granularity, share or "token"),
        group_size=int(size) if size else None,
        symmetric=parts["asym"] is None,
    )


@dataclass(frozen=True, kw_only=True)
class StaticScale:
    """One scale above zero and one zero point for all values at a point."""

    scale: float
    zero: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """The result of rounding. `values` and `codes` have the input's shape. `scales` and `zeros`
    are [.., G, 1] for the input's rows, or [1] for a whole tensor. `scaled` are the values that
    were rounded to codes of `grid`."""

    values: Tensor
    codes: Tensor
    scales: Tensor
    zeros: Tensor
    scaled: Tensor
    grid: ActivationGrid

    @property
    def num_clamped(self) -> int:
        """The number of values beyond the range."""
        return int(self.grid.is_beyond(self.scaled).sum())


def round_activations(
    x: Tensor, grid: ActivationGrid, static: StaticScale | None = None
) -> Rounded:
    """Rounds [.., T, I] values to `grid`, with dynamic scales, or with the `static` one for a grid
    of granularity "tensor". NaN stays NaN."""
    assert static is None or (grid.granularity == "tensor" and grid.has_scales), grid
    if not grid.has_scales:
        one = torch.ones(1, dtype=x.dtype)
        codes = grid.to_number(x)
        return Rounded(
            values=codes,
            codes=codes,
            scales=one,
            zeros=torch.zeros_like(one),
            scaled=x,
            grid=grid,
        )
    shared = _shared(x, grid)
    if static is not None:
        scales = torch.tensor([static.scale], dtype=x.dtype)
        inverses, zeros = scales.reciprocal(), torch.tensor([static.zero], dtype=x.dtype)
    else:
        scales, inverses, zeros = _find_scales(shared, grid)
    # Symmetric grids multiply by the inverse, as the native kernels do. Grids with zero points
    # divide, as compressed-tensors does.
    scaled = shared * inverses if grid.symmetric else shared / scales + zeros
    codes = grid.to_number(scaled)
    return Rounded(
        values=_unshared((codes - zeros) * scales, x, grid),
        codes=_unshared(codes, x, grid),
        scales=scales,
        zeros=zeros,
        scaled=scaled,
        grid=grid,
    )


def round_input(
    x: Tensor,
    activations: ActivationDType | Literal["int8_tensor"],
    input_scale: float | None = None,
    *,
    group_size: int | None = None,
) -> Tensor:
    """Rounds [.., I] inputs as a linear layer stored with these `activations` reads them.

    `input_scale` is the scale for int8_static. `group_size` is the weight's, for int8_group and
    int16_group; None means one scale per row. If the weight's groups have scales too, those of
    inputs are powers of two and codes end at 120 (csrc/kernels/linear/prepare.h). int16_group
    rounds by int8_group, then rounds the remainder alike. int8_tensor, one dynamic scale for the
    whole tensor, is SmoothQuant's O2 (arXiv 2211.10438); no stored format asks for it. The other
    results equal the native kernels' bit for bit.
    """
    if activations == "fp32":
        return x
    if activations == "bf16":
        return round_activations(x, ActivationGrid(dtype="bf16")).values
    if activations == "int8_tensor":
        return round_activations(x, ActivationGrid(granularity="tensor")).values
    if activations == "int8_row":
        return round_activations(x, ActivationGrid(granularity="token")).values
    if activations == "int8_static":
        assert input_scale is not None
        static = StaticScale(scale=input_scale)
        return round_activations(x, ActivationGrid(granularity="tensor"), static).values
    group = kernel_group_size(x.shape[-1], group_size)
    has_powers = group_size is not None and group_size < x.shape[-1]
    return _rounded_groups(x, activations, group, has_powers)


def _rounded_groups(
    x: Tensor, activations: ActivationDType, group_size: int, has_powers: bool
) -> Tensor:
    """Rounds by int8_group, or by int16_group, which also rounds the remainder."""
    rounded = _rounded_group(x, group_size, has_powers)
    if activations == "int16_group":
        return rounded + _rounded_group(x - rounded, group_size, has_powers)
    return rounded


def _rounded_group(x: Tensor, group_size: int, has_powers: bool) -> Tensor:
    grid = ActivationGrid(granularity="group", group_size=group_size)
    if not has_powers:
        return round_activations(x, grid).values
    shared = _shared(x, grid)
    scales = _powers_above(shared.abs().amax(-1, keepdim=True) / _LARGEST_POWER_CODE)
    codes = (shared / scales).round().clamp(-128, 127)
    return _unshared(codes * scales, x, grid)


def round_inputs(module: nn.Linear, spec: WeightSpec, input_scale: float | None) -> RemovableHandle:
    """Makes the module round its inputs by `round_input` for a weight in `spec`, until the handle
    is removed. Super-blocks have one input scale each."""
    block = spec.traits.block

    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, activations = inputs[0], spec.activations
        if block is not None:
            return (_rounded_groups(x, activations, block.num_columns, has_powers=False),)
        return (round_input(x, activations, input_scale, group_size=spec.group_size),)

    return module.register_forward_pre_hook(hook)


def kernel_group_size(num_columns: int, group_size: int | None) -> int:
    """Returns how many columns share an input scale in int8_group and int16_group. These are the
    weight's groups. A weight without groups uses the largest of 128, 64 and 32 that divides its
    columns, padded to a multiple of 32 (csrc/weights/packed_linear.cpp)."""
    if group_size is not None and group_size < num_columns:
        return group_size
    padded = -(-num_columns // 32) * 32
    return next(group for group in (128, 64, 32) if padded % group == 0)


def _powers_above(scales: Tensor) -> Tensor:
    """Returns the least powers of two, from 2^-100 on, that are no less; NaN above 2^104."""
    mantissas, exponents = torch.frexp(scales.clamp(min=2.0**-100))
    powers = torch.ldexp(torch.ones_like(scales), exponents - (mantissas == 0.5).to(torch.int32))
    return powers.masked_fill(~(scales <= 2.0**104), math.nan)


def _shared(x: Tensor, grid: ActivationGrid) -> Tensor:
    """Returns `x` with values that share a scale in the last dimension; a short last group is
    padded with zeros."""
    if grid.granularity == "tensor":
        return x.reshape(1, -1)
    if grid.granularity == "token":
        return x.unsqueeze(-2)
    assert grid.group_size is not None
    assert not grid.is_sign or x.shape[-1] % grid.group_size == 0, "zeros would change the mean"
    padded = functional.pad(x, (0, -x.shape[-1] % grid.group_size))
    return padded.reshape(*x.shape[:-1], -1, grid.group_size)


def _find_scales(shared: Tensor, grid: ActivationGrid) -> tuple[Tensor, Tensor, Tensor]:
    """Returns scales, the multipliers of symmetric grids, and zero points, [.., 1] each."""
    if grid.is_sign:
        scales = shared.abs().mean(-1, keepdim=True)
        return scales, torch.ones_like(scales), torch.zeros_like(scales)
    low, high = grid.code_range
    if grid.symmetric:
        limits = shared.abs().amax(-1, keepdim=True)
        # A number over a tensor would become a product with the reciprocal, which rounds twice.
        inverses = torch.full_like(limits, high) / limits
        return limits / high, inverses.masked_fill(inverses.isinf(), 0.0), torch.zeros_like(limits)
    lowest = shared.amin(-1, keepdim=True).clamp(max=0)
    highest = shared.amax(-1, keepdim=True).clamp(min=0)
    # Each is halved first: the difference of two large values may exceed the largest float.
    scales = (highest / 2 - lowest / 2) / ((high - low) / 2)
    scales = scales.masked_fill(scales == 0, 1.0)
    return scales, scales.reciprocal(), (low - lowest / scales).clamp(low, high).round()


def _unshared(part: Tensor, x: Tensor, grid: ActivationGrid) -> Tensor:
    """Returns codes, clamped flags or values in the shape of `x`."""
    if grid.granularity == "group":
        return part.flatten(-2)[..., : x.shape[-1]]
    return part.reshape(x.shape)
