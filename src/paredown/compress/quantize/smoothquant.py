"""SmoothQuant (arXiv 2211.10438): moves a part of the norms' large channels into the weights, so
that inputs and weights can both be rounded to 8 bits. A layer whose norms follow its sums (BERT)
passes nothing on from them; there v's channels are smoothed for o (models/decoder/smoothing.py).

Shapes: N sequences, T tokens, D hidden size, I columns of a linear layer, P channels of a norm.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paredown.compress.activations import round_inputs
from paredown.compress.calibrate.expert_inputs import largest_input
from paredown.compress.calibrate.input_sample import (
    check_sample,
    observe,
    positions,
    sample_encoded,
    sample_inputs,
)
from paredown.compress.calibrate.input_statistics import static_input_scale
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
from paredown.compress.quantize.rtn import RTN
from paredown.errors import ConfigError
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.points import input_point
from paredown.models.decoder.smoothing import input_pairs, pairs_left_out

# The values tried for each layer, besides no smoothing; the paper finds 0.4 to 0.6 best for OPT.
ALPHAS = tuple(step / 20 for step in range(4, 20))
_SMALLEST = 1e-5


@dataclass(frozen=True, kw_only=True)
class SmoothQuant:
    """`alpha` is the share of an input's range that moves to the weights, 0 to 1; None searches it
    for each layer. `per_tensor` searches for weights with one scale for all rows (O1 to O3; the
    quantizer needs the same option). `num_tokens` limits the sample on which alphas are compared.

    Raises ConfigError for an alpha outside of 0 to 1 and for an empty sample.
    """

    alpha: float | None = None
    per_tensor: bool = False
    num_tokens: int = 1024

    def __post_init__(self) -> None:
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ConfigError(
                "alpha is a share of a range",
                seen=self.alpha,
                remedy="Give 0 to 1, or leave it out: it is searched then.",
            )
        check_sample(self.num_tokens)

    @torch.no_grad()
    def apply(self, block: Block, targets: Mapping[str, LayerTarget]) -> Transformed:
        """Smooths the layer in place. The error of an alpha is that of the layer's output when the
        weights and inputs of all `targets` are rounded as they will be. A note names the alpha."""
        rounded = {
            role: target.searched for role, target in targets.items() if target.spec.is_quantized
        }
        if not rounded:
            return Transformed()
        pairs = input_pairs(block.layer.spec)
        has_more = block.layer.spec.cross is not None or "v" in {one.producer for one in pairs}
        left_out = pairs_left_out(block.layer.spec) if has_more else ()
        points = {input_point(role) for role in targets} | {pair_input(pair) for pair in pairs}
        seen = observe(block, points, num_tokens=1)
        absmax = {point: one.absmax_I for point, one in seen.items()}
        if self.alpha is not None:
            smooth(block, rounded, absmax, self.alpha)
            return Transformed(notes=(f"alpha {self.alpha:.2f}", *left_out))
        alpha = self._search(block, rounded, absmax)
        if alpha is None:
            return Transformed(notes=("unsmoothed, no alpha lost less", *left_out))
        smooth(block, rounded, absmax, alpha)
        return Transformed(notes=(f"alpha {alpha:.2f}", *left_out))

    def _search(
        self, block: Block, targets: Mapping[str, LayerTarget], absmax: Mapping[str, Tensor]
    ) -> float | None:
        layer = block.layer
        x_NTD = sample_inputs(block, self.num_tokens)
        beside = (*positions(block, x_NTD.shape[1]), sample_encoded(block, len(x_NTD)))
        expected_NTD = layer(x_NTD, *beside)
        kept = {name: values.clone() for name, values in layer.state_dict().items()}
        best_error, best = torch.inf, None
        for alpha in (None, *ALPHAS):
            smoothed = absmax if alpha is None else smooth(block, targets, absmax, alpha)
            with simulated(layer, targets, smoothed, RTN(per_tensor=self.per_tensor)):
                moved_NTD = layer(x_NTD, *beside) - expected_NTD
            error = float(moved_NTD.square().mean(dtype=torch.float64))
            if error < best_error:
                best_error, best = error, alpha
            layer.load_state_dict(kept)
        return best


def smoothing_scales(absmax_P: Tensor, weight_absmax_P: Tensor, alpha: float) -> Tensor:
    """Returns s = max|x|^alpha / max|w|^(1 - alpha) for each channel (equation 4). A channel that
    calibration never used keeps its scale, which the equation would make huge."""
    weight_absmax_P = weight_absmax_P.clamp(min=_SMALLEST)
    scales_P = absmax_P.pow(alpha) / weight_absmax_P.pow(1 - alpha)
    return torch.where(absmax_P > 0, scales_P.clamp(min=_SMALLEST), 1.0)


def smooth(
    block: Block, targets: Mapping[str, LayerTarget], absmax: Mapping[str, Tensor], alpha: float
) -> dict[str, Tensor]:
    """Moves the ranges in place and returns the new `absmax`, by point."""
    layer, result = block.layer, dict(absmax)
    for pair in input_pairs(layer.spec):
        wanted = [targets[role] for role in pair.consumers if role in targets]
        if not wanted:
            continue
        point = pair_input(pair)
        largest = [linear_weight(layer, role).abs().amax(0) for role in pair.consumers]
        absmax_P, weight_absmax_P = (
            columns_of_channels(pair, values_I).amax(-1)
            for values_I in (absmax[point], torch.stack(largest).amax(0))
        )
        scales_P = smoothing_scales(absmax_P, weight_absmax_P, alpha)
        factors_P = rescale(layer, pair, fitting(pair, scales_P), wanted[0].scale_dtype)
        for read in {point, *map(input_point, pair.consumers)} & set(absmax):
            result[read] = absmax[read] / to_columns(pair, factors_P)
    return result


@contextmanager
def simulated(
    layer: Layer,
    targets: Mapping[str, LayerTarget],
    absmax: Mapping[str, Tensor],
    rounding: RTN,
) -> Iterator[None]:
    """Rounds the weights and inputs of `targets` until the block ends. Static scales follow from
    `absmax` by point; an expert that saw no token uses that of all experts."""
    weights = {
        role: rounding.quantize(weight_OI, target, None).values()
        for role, target in targets.items()
        for weight_OI in [linear_weight(layer, role)]
    }
    with ExitStack() as stack:
        stack.enter_context(replaced(layer, weights))
        for role, target in targets.items():
            largest = largest_input(input_point(role), absmax)
            module = layer.get_submodule(role)
            assert isinstance(module, nn.Linear)
            scale = static_input_scale(largest, target.scale_dtype)
            stack.callback(round_inputs(module, target.spec, scale).remove)
        yield
