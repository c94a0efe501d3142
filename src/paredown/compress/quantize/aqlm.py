"""AQLM (arXiv 2401.06118): replaces each group of a row's weights by a sum of vectors, one from
each of a few codebooks (docs/methods/aqlm.md).

With H from calibration it minimizes tr((W - W') H (W - W')^T) over three blocks of unknowns in
turn; no turn increases it:
    codes      beam search                     (compress/quantize/codebook_search.py)
    codebooks  conjugate gradients             (compress/quantize/codebook_tuning.py)
    scales     closed form, one for each row   (the same)
The first codebooks come from residual K-means (compress/quantize/residual_kmeans.py).

Shapes: O output rows, I input columns, J groups of C columns, M codebooks of K vectors.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from paredown.compress.quantize.codebook_search import additive_values, beam_search, row_losses
from paredown.compress.quantize.codebook_tuning import tune_codebooks, tune_scales
from paredown.compress.quantize.method import (
    LayerTarget,
    Moments,
    Quantized,
    check_holds_zeros,
)
from paredown.compress.quantize.residual_kmeans import residual_kmeans
from paredown.errors import CheckpointError, ConfigError
from paredown.formats.codebook_weight import CodebookSpec, CodebookWeight
from paredown.formats.floating import round_to
from paredown.spec.weight import ScaleDType, WeightSpec


@dataclass(frozen=True, kw_only=True)
class Additive:
    """The state of the search: codes [O, J, M] int64, codebooks [M, K, C], scales [O]."""

    codes_OJM: Tensor
    codebooks_MKC: Tensor
    scales_O: Tensor

    def values(self) -> Tensor:
        """Returns the weight [O, I]."""
        return self.scales_O[:, None] * additive_values(self.codes_OJM, self.codebooks_MKC)

    def loss(self, weight_OI: Tensor, hessian_II: Tensor) -> float:
        """Returns tr((W - W') H (W - W')^T)."""
        return float(row_losses(weight_OI - self.values(), hessian_II).sum())


@dataclass(frozen=True, kw_only=True)
class AQLM:
    """Makes `num_codebooks` codebooks of 2^`nbits_per_codebook` vectors for groups of
    `in_group_size` columns. All linear layers of a checkpoint share this shape, as the format
    requires; rows are not grouped, as the paper advises. A target's format is a 16-bit float, the
    dtype of codebooks and scales.

    The search runs at most `max_rounds` rounds of codes, codebooks, scales, and stops when one
    removes less than `tolerance` of the loss. `beam_size` rows continue in the search for codes.
    Raises ConfigError for codebooks that the format cannot hold, UnsupportedError for groups that
    do not divide the columns.
    """

    needs_hessian: ClassVar[bool] = True
    without_inputs: ClassVar[str] = "codebooks of its weights alone"
    holds_zeros: ClassVar[bool] = False

    num_codebooks: int = 2
    nbits_per_codebook: int = 8
    in_group_size: int = 8
    beam_size: int = 4
    max_rounds: int = 10
    tolerance: float = 0.01
    num_kmeans_iterations: int = 30
    num_gradient_iterations: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        assert self.spec
        if min(self.beam_size, self.max_rounds) < 1:
            raise ConfigError(
                "AQLM searches with at least one row, in at least one round",
                seen=f"beam_size {self.beam_size}, max_rounds {self.max_rounds}",
                remedy="Leave them out for the defaults.",
            )

    @property
    def spec(self) -> CodebookSpec:
        return CodebookSpec(
            num_codebooks=self.num_codebooks,
            nbits_per_codebook=self.nbits_per_codebook,
            in_group_size=self.in_group_size,
        )

    def stored_spec(self, spec: WeightSpec) -> CodebookSpec:
        return replace(self.spec, float_dtype=half_dtype(spec))

    def check(self, spec: WeightSpec) -> None:
        half_dtype(spec)

    def quantize(
        self, weight_OI: Tensor, target: LayerTarget, moments: Moments | None
    ) -> Quantized:
        assert moments is not None
        if target.mask_OI is not None:
            check_holds_zeros(self)
        spec = self.stored_spec(target.spec)
        spec.num_patches((weight_OI.shape[0], weight_OI.shape[1]))
        hessian_II = moments.hessian_II.to(weight_OI.dtype)
        state = self.begin(weight_OI)
        loss = state.loss(weight_OI, hessian_II)
        for _ in range(self.max_rounds):
            *_, state = self.round(state, weight_OI, hessian_II)
            before, loss = loss, state.loss(weight_OI, hessian_II)
            if not loss < before * (1 - self.tolerance):
                break
        state = replace(
            state,
            codebooks_MKC=stored(state.codebooks_MKC, spec.float_dtype),
            scales_O=stored(state.scales_O, spec.float_dtype),
        )
        state = self.search(state, weight_OI, hessian_II)
        return Quantized(weight=to_weight(state, spec))

    def begin(self, weight_OI: Tensor) -> Additive:
        """Starts with residual K-means of the rows, each divided by its root mean square."""
        scales_O = weight_OI.square().mean(1).sqrt()
        unit_OI = weight_OI / torch.where(scales_O > 0, scales_O, 1)[:, None]
        codebooks_MKC, codes_NM = residual_kmeans(
            unit_OI.reshape(-1, self.spec.in_group_size),
            self.spec.num_codebooks,
            self.spec.codebook_size,
            self.num_kmeans_iterations,
            self.seed,
        )
        codes_OJM = codes_NM.reshape(weight_OI.shape[0], -1, self.spec.num_codebooks)
        return Additive(codes_OJM=codes_OJM, codebooks_MKC=codebooks_MKC, scales_O=scales_O)

    def round(self, state: Additive, weight_OI: Tensor, hessian_II: Tensor) -> Iterator[Additive]:
        """Yields the state after each of the three turns."""
        state = self.search(state, weight_OI, hessian_II)
        yield state
        codebooks_MKC = tune_codebooks(
            weight_OI,
            hessian_II,
            state.codes_OJM,
            state.codebooks_MKC,
            state.scales_O,
            self.num_gradient_iterations,
        )
        state = replace(state, codebooks_MKC=codebooks_MKC)
        yield state
        scales_O = tune_scales(
            weight_OI, hessian_II, state.codes_OJM, state.codebooks_MKC, state.scales_O
        )
        yield replace(state, scales_O=scales_O)

    def search(self, state: Additive, weight_OI: Tensor, hessian_II: Tensor) -> Additive:
        codes_OJM = beam_search(
            weight_OI,
            hessian_II,
            state.codes_OJM,
            state.codebooks_MKC,
            state.scales_O,
            self.beam_size,
        )
        return replace(state, codes_OJM=codes_OJM)


def half_dtype(spec: WeightSpec) -> ScaleDType:
    """Returns the dtype of codebooks and scales. Raises ConfigError for a format that is not a
    16-bit float."""
    if spec.dtype == "fp16" or spec.dtype == "bf16":
        return spec.dtype
    raise ConfigError(
        f"aqlm cannot make {spec.name}: it stores codebooks, in a 16-bit float, and how many bits "
        "a weight takes is in its options",
        seen=f"method aqlm with format {spec.name}",
        remedy="Name the recipe aqlm-2x8-g8 or aqlm-1x8-g4; or, in a recipe file, give format: "
        "fp16, and num_codebooks, nbits_per_codebook and in_group_size.",
    )


def stored(values: Tensor, dtype: ScaleDType) -> Tensor:
    """Returns the values rounded to `dtype`."""
    return torch.from_numpy(round_to(values.float().numpy(), dtype)).to(values.dtype)


def to_weight(state: Additive, spec: CodebookSpec) -> CodebookWeight:
    """Returns a state of rounded numbers in its stored form. Raises CheckpointError if they are
    not finite, as for weights or inputs that are not."""
    finite = torch.isfinite(state.codebooks_MKC).all() and torch.isfinite(state.scales_O).all()
    if not bool(finite):
        raise CheckpointError(
            "a weight became codebooks that are not finite numbers",
            seen="NaN or infinite codebooks or scales",
            remedy="The checkpoint is damaged or its training diverged; use another one.",
        )
    return CodebookWeight(
        spec=spec,
        codes_AJM=state.codes_OJM.numpy().astype(np.uint16),
        codebooks_MKRC=state.codebooks_MKC[:, :, None, :].float().numpy(),
        scales_A=state.scales_O.float().numpy(),
    )
