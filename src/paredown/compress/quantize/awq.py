"""AWQ (arXiv 2306.00978): scales up weight columns with large inputs before rounding, and scales
down the inputs by the same factor; then clips the range of each group.

Shapes: N sequences, T tokens, I columns and O rows of a linear layer, P channels of a pair's
producer, G groups of C columns, S sampled tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.compress.calibrate.expert_inputs import unseen_experts
from paredown.compress.calibrate.input_sample import (
    Observation,
    check_sample,
    observe,
    positions,
    sample_encoded,
)
from paredown.compress.fit_grid import fit_grid
from paredown.compress.grid import Grid, grid_of_range, grouped
from paredown.compress.progressive_groups import fit_progressive_groups
from paredown.compress.quantize.method import Block, LayerTarget, Transformed
from paredown.compress.quantize.rescale import (
    columns_of_channels,
    fitting,
    linear_weight,
    pair_input,
    replaced,
    rescale,
    to_columns,
)
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import ROLE_POINTS, input_point
from paredown.models.decoder.smoothing import SmoothingPair, pairs_left_out, smoothing_pairs
from paredown.spec.experts import split_role

# The steps of the search for the exponent r, as in the authors' code
# (github.com/mit-han-lab/llm-awq).
_NUM_RATIOS = 20
_SMALLEST = 1e-4
# The clipping search tries ranges from 1 down to 1 - 10/20 of a group's largest weight, on at most
# this many tokens. It skips queries and keys, because their products meet in the softmax.
_CLIP_STEPS = 20
_CLIP_TRIED = 10
_CLIP_TOKENS = 512
_NOT_CLIPPED = ("q", "k", "cross_q", "cross_k")
# The integer steps to try, around the one at or just below the whole range; the smallest cuts
# ranges to about six tenths. The whole range comes first, and stays if no input makes a difference.
_NEAR_STEPS = (0, 1, -1, -2, -3, -4, -5, -6)
# The products of weights and sampled tokens that the clipping search holds at once.
_CHUNK_VALUES = 1 << 24

# Returns the output of the pair's part of the layer for its input sample.
_Part = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class AWQ:
    """With `clip` the groups' ranges are searched too. `num_tokens` is the size of the sample on
    which scales are compared; their statistics come from all calibration tokens.

    Raises ConfigError for an empty sample.
    """

    clip: bool = True
    num_tokens: int = 2048

    def __post_init__(self) -> None:
        check_sample(self.num_tokens)

    @torch.no_grad()
    def apply(self, block: Block, targets: Mapping[str, LayerTarget]) -> Transformed:
        """Scales the layer in place, then clips it, for the grids of `targets`
        (`LayerTarget.searched`). Integer steps are searched instead of clipping (`search_steps`),
        and their grids returned. Notes name the pairs that were left out, and those for which no
        scaling helped."""
        layer = block.layer
        rounded = {
            role: target.searched for role, target in targets.items() if target.spec.is_quantized
        }
        if not rounded:
            return Transformed()
        pairs = smoothing_pairs(layer.spec)
        points = {input_point(role) for role in rounded} | {pair_input(pair) for pair in pairs}
        seen = observe(block, points, self.num_tokens)
        samples = {point: one.sample_NTI for point, one in seen.items()}
        notes = list(pairs_left_out(layer.spec))
        for pair in pairs:
            wanted = {role: rounded[role] for role in pair.consumers if role in rounded}
            point = pair_input(pair)
            if not wanted or point not in seen:
                continue
            scales_P = _search_scales(block, pair, wanted, seen[point])
            if scales_P is None:
                notes.append(f"{pair.name}: unscaled, no scale lost less")
                continue
            stored = next(iter(wanted.values())).scale_dtype
            scales_I = to_columns(pair, rescale(layer, pair, scales_P, stored))
            for read in {point, *map(input_point, pair.consumers)} & set(samples):
                samples[read] = samples[read] / scales_I
        grids: dict[str, Grid] = {}
        for role in rounded if self.clip else ():
            if role in _NOT_CLIPPED or input_point(role) not in samples:
                continue
            x_SI = samples[input_point(role)].flatten(0, 1)
            weight_OI = linear_weight(layer, role)
            if targets[role].spec.integer_steps:
                grids[role] = search_steps(weight_OI, x_SI, targets[role])
            else:
                weight_OI.copy_(clipped(weight_OI, x_SI, rounded[role]))
        notes += unseen_experts(rounded, seen, "neither scaled nor clipped")
        return Transformed(notes=tuple(notes), grids=grids)


def pseudo_quantized(weight_OI: Tensor, target: LayerTarget) -> Tensor:
    """Returns the weight rounded to nearest on the target's grid."""
    values_OGC = grouped(weight_OI, target.spec.group_size)
    grid = fit_grid(values_OGC, target.spec, target.scale_dtype)
    return grid.values(grid.codes(values_OGC)).reshape(weight_OI.shape)


def candidate_scales(ratio: float, absmean_P: Tensor, weight_mean_P: Tensor) -> Tensor:
    """Returns s = x^r / w^(1 - r) for each channel, normalized to sqrt(max s * min s) = 1."""
    scales_P = absmean_P.pow(ratio) / (weight_mean_P.pow(1 - ratio) + _SMALLEST)
    scales_P = scales_P.clamp(min=_SMALLEST)
    scales_P = scales_P / (scales_P.max() * scales_P.min()).sqrt()
    return torch.where(torch.isfinite(scales_P) & (scales_P > 0), scales_P, 1.0)


def weight_means(weights: Mapping[str, Tensor], targets: Mapping[str, LayerTarget]) -> Tensor:
    """Returns [I]: the size of a column's weights, each as a share of its group's largest,
    averaged over the rows of all `weights`."""
    shares = []
    for role, weight_OI in weights.items():
        values_OGC = grouped(weight_OI, targets[role].spec.group_size).abs()
        largest_OG1 = values_OGC.amax(-1, keepdim=True)
        shares.append((values_OGC / (largest_OG1 + 1e-6)).reshape(weight_OI.shape))
    return torch.cat(shares).mean(0)


def clipped(weight_OI: Tensor, x_SI: Tensor, target: LayerTarget) -> Tensor:
    """Returns the weight with each row's groups limited to a range [-a, a]. a falls in steps to
    half the group's largest weight. The chosen range changes the sum over the group of w x the
    least when it is rounded, for the inputs `x_SI`."""
    values_OGC = grouped(weight_OI, target.spec.group_size)
    x_GCS = _sampled(x_SI, values_OGC)
    chunk_rows = max(1, _CHUNK_VALUES // (x_GCS.shape[0] * x_GCS.shape[2]))
    parts = [
        _clip_rows(rows_OGC, x_GCS, target) for rows_OGC in torch.split(values_OGC, chunk_rows)
    ]
    return torch.cat(parts).reshape(weight_OI.shape)


def search_steps(weight_OI: Tensor, x_SI: Tensor, target: LayerTarget) -> Grid:
    """Returns the grid of integer steps that changes the sum over the group of w x the least, for
    the inputs `x_SI`. Row scales and steps are searched together by that error, not by the
    weights' own squared error. Smaller steps cut ranges, as clipping does."""
    values_OGC = grouped(weight_OI, target.spec.group_size)
    x_GCS = _sampled(x_SI, values_OGC)
    products_GCC = x_GCS @ x_GCS.mT

    def loss(moved_OGC: Tensor) -> Tensor:
        outputs_OGC = (moved_OGC.transpose(0, 1) @ products_GCC).transpose(0, 1)
        return (outputs_OGC * moved_OGC).sum(-1)

    lowest, highest = values_OGC.amin(-1).clamp(max=0), values_OGC.amax(-1).clamp(min=0)
    whole = grid_of_range(lowest, highest, target.spec, target.scale_dtype)
    return fit_progressive_groups(values_OGC, whole, _NEAR_STEPS, loss=loss)


def _sampled(x_SI: Tensor, values_OGC: Tensor) -> Tensor:
    """Returns [G, C, S]: the inputs of each group of columns, for at most `_CLIP_TOKENS` tokens."""
    step = -(-x_SI.shape[0] // _CLIP_TOKENS)
    return x_SI[::step].reshape(-1, *values_OGC.shape[1:]).permute(1, 2, 0)


def _clip_rows(values_OGC: Tensor, x_GCS: Tensor, target: LayerTarget) -> Tensor:
    largest_OG1 = values_OGC.abs().amax(-1, keepdim=True)
    best_OG1 = torch.full_like(largest_OG1, torch.inf)
    limits_OG1 = largest_OG1.clone()
    for step in range(_CLIP_TRIED + 1):
        tried_OG1 = largest_OG1 * (1 - step / _CLIP_STEPS)
        narrow_OGC = values_OGC.clamp(-tried_OG1, tried_OG1)
        grid = fit_grid(narrow_OGC, target.spec, target.scale_dtype)
        moved_GOC = (grid.values(grid.codes(narrow_OGC)) - values_OGC).transpose(0, 1)
        error_OG1 = (moved_GOC @ x_GCS).square().sum(-1).T[..., None]
        better_OG1 = error_OG1 < best_OG1
        best_OG1 = torch.where(better_OG1, error_OG1, best_OG1)
        limits_OG1 = torch.where(better_OG1, tried_OG1, limits_OG1)
    return values_OGC.clamp(-limits_OG1, limits_OG1)


def _search_scales(
    block: Block, pair: SmoothingPair, targets: Mapping[str, LayerTarget], observed: Observation
) -> Tensor | None:
    """Returns the channels' scales with which the part's output loses least; None for no
    scaling."""
    layer, sample_NTI = block.layer, observed.sample_NTI
    weights = {role: linear_weight(layer, role) for role in targets}
    absmean_P = columns_of_channels(pair, observed.absmean_I).mean(-1)
    means_P = columns_of_channels(pair, weight_means(weights, targets)).mean(-1)
    part = _part(block, pair, len(sample_NTI))
    expected = part(sample_NTI)

    def loss(scales_P: Tensor) -> float:
        scales_I = to_columns(pair, scales_P)
        trial = {
            role: pseudo_quantized(weight_OI * scales_I, targets[role]) / scales_I
            for role, weight_OI in weights.items()
        }
        with replaced(layer, trial):
            return float((part(sample_NTI) - expected).square().mean(dtype=torch.float64))

    best, found = loss(torch.ones_like(absmean_P)), None
    for step in range(_NUM_RATIOS):
        scales_P = fitting(pair, candidate_scales(step / _NUM_RATIOS, absmean_P, means_P))
        error = loss(scales_P)
        if error < best:
            best, found = error, scales_P
    return found


def _part(block: Block, pair: SmoothingPair, num_sequences: int) -> _Part:
    """Returns the part of the layer whose output the pair's consumers determine: attention,
    cross-attention, the MLP, or one linear layer. It is for inputs of the first
    `num_sequences`."""
    layer: Layer = block.layer
    if len(pair.consumers) == 1 and split_role(pair.producer)[1] in ROLE_POINTS:
        return lambda x_NTI: layer.apply_linear(pair.consumers[0], x_NTI)
    if pair.producer == "mlp_norm":
        return layer.mlp
    if pair.producer == "cross_norm":
        encoded_NSD = sample_encoded(block, num_sequences)
        assert encoded_NSD is not None
        heads = layer.cross_heads(encoded_NSD)
        return lambda x_NTD: layer.apply_linear(
            "cross_o", layer.mix_cross(layer.split_cross("cross_q", x_NTD), *heads)
        )

    def attention(x_NTD: Tensor) -> Tensor:
        return layer.attention(x_NTD, *positions(block, x_NTD.shape[1]))

    return attention
