"""Weighs what the removal of each layer would cost, in one pass of the calibration text through the
original.

Shapes: B windows, T tokens, D hidden size.
"""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import LayerBlock, StopForwardError, load_block, stopping
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.cut.compensation import FitSums, compensated
from paredown.compress.cut.embedded import embedded
from paredown.compress.cut.layers import CutLayers
from paredown.errors import naming
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress


class LayerCosts:
    """Passes the text through the original and weighs the removal of each layer.

    With compensation a removal costs what the `down` of the layer before cannot make up for: the
    mean over tokens of |y - y'|^2 / |y|^2, for the layer's output y and the best y' that this
    `down` can give. Where there is no such `down`, y' is the layer's input.
    """

    def __init__(
        self, source: Checkpoint, cut: CutLayers, calibration: Calibration, workspace: Workspace
    ) -> None:
        self._source = source
        self._cut = cut
        self._calibration = calibration
        self._workspace = workspace

    def run(self, on_progress: OnProgress) -> list[float]:
        source, calibration = self._source, self._calibration
        inputs = self._file(0)
        inputs.write(embedded(source, calibration), lasting=False)
        before: LayerBlock | None = None
        costs = []
        for index in range(source.spec.num_layers):
            on_progress(f"layer {index + 1}: weighing", index / source.spec.num_layers)
            block = load_block(source, index, self._file(index))
            source.release()
            costs.append(self._cost(block, before))
            if before is not None:
                before.activations.path.unlink()
            before = block
        self._file(index).path.unlink()
        self._file(index + 1).path.unlink()
        return costs

    def _file(self, index: int) -> ActivationFile:
        windows_NT = self._calibration.windows_NT
        shape = (*windows_NT.shape, self._source.spec.hidden_size)
        return self._workspace.inside(index, "survey", (shape[0], shape[1], shape[2]))

    def _cost(self, block: LayerBlock, before: LayerBlock | None) -> float:
        """Writes the layer's outputs and returns what its removal costs."""
        cost: InfluenceSum | UnexplainedSum = InfluenceSum()
        if self._cut.compensation is not None:
            cost = UnexplainedSum(before, self._cut.compensation.damp)

        def outputs() -> Iterator[Tensor]:
            for x_BTD in block.inputs():
                y_BTD = block.layer(x_BTD, block.table, block.mask)
                cost.add(x_BTD, y_BTD)
                yield y_BTD

        with naming(f"layer {block.layer.index}"):
            self._file(block.layer.index + 1).write(outputs(), lasting=False)
            return cost.mean()


class InfluenceSum:
    """The block influence of ShortGPT: 1 - cos(a layer's input, its output), as a mean."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._num_tokens = 0

    def add(self, x_BTD: Tensor, y_BTD: Tensor) -> None:
        cosines_BT = functional.cosine_similarity(x_BTD, y_BTD, dim=-1)
        self._sum += float((1 - cosines_BT).sum(dtype=torch.float64))
        self._num_tokens += cosines_BT.numel()

    def mean(self) -> float:
        return self._sum / self._num_tokens


class UnexplainedSum:
    """The share of a layer's outputs that the layer `before` it cannot give in its place, as a
    mean over tokens of squares."""

    def __init__(self, before: LayerBlock | None, damp: float) -> None:
        self._before = before if before is not None and _can_make_up(before) else None
        self._damp = damp
        self._square = 0.0
        self._num_tokens = 0
        if self._before is not None:
            down = self._before.layer.get_submodule("down")
            assert isinstance(down, nn.Linear)
            self._weight_OI, self._bias_O = down.weight.data, down.bias
            self._fit = FitSums(self._weight_OI)
            self._inputs = self._before.inputs()

    def add(self, x_BTD: Tensor, y_BTD: Tensor) -> None:
        """Adds a batch of the layer's inputs and outputs, in the order of the calibration."""
        sizes_BT1 = torch.linalg.vector_norm(y_BTD, dim=-1, keepdim=True).clamp(min=1e-20)
        rest_BTD = y_BTD - x_BTD
        if self._before is not None:
            sum_BTD, neurons_BTI = self._behind(next(self._inputs))
            rest_BTD = y_BTD - sum_BTD
            multiplier = self._before.layer.spec.residual_multiplier
            if self._bias_O is not None:
                rest_BTD = rest_BTD - multiplier * self._bias_O
            self._fit.add(multiplier * neurons_BTI / sizes_BT1, rest_BTD / sizes_BT1)
        self._square += float((rest_BTD / sizes_BT1).square().sum(dtype=torch.float64))
        self._num_tokens += y_BTD.shape[0] * y_BTD.shape[1]

    def mean(self) -> float:
        square = self._square / self._num_tokens
        if self._before is None:
            return square
        weight_OI = self._weight_OI
        hessian_II = self._fit.moments().hessian_II
        cross_OI = self._fit.cross(hessian_II)
        every = np.arange(weight_OI.shape[1])
        best_OI = compensated(weight_OI, hessian_II, cross_OI, every, self._damp).double()
        explained = float((best_OI * cross_OI).sum())
        return square - explained + float((best_OI @ hessian_II.double() * best_OI).sum()) / 2

    def _behind(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the residual before the MLP of the layer before, and what its `down` reads."""
        before = self._before
        assert before is not None
        seen: dict[str, Tensor] = {}

        def tap(point: str, x: Tensor) -> Tensor:
            if point in ("attention_sum", "down_input"):
                seen[point] = x
            return x

        with before.tapped(stopping(tap, "down_input")), suppress(StopForwardError):
            before.layer(x_BTD, before.table, before.mask)
        return seen["attention_sum"], seen["down_input"]


def _can_make_up(block: LayerBlock) -> bool:
    """Whether the residual depends on the layer's `down` linearly."""
    spec = block.layer.spec
    is_plain = spec.norms.mlp_output is None and spec.norms.mlp_sum is None
    return not spec.has_experts and is_plain
