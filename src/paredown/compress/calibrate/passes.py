"""Passes over a layer whose linear layers are finished group by group. Values before the first
unfinished group are kept on disk and not computed again:

    o_input          attention's output, once q, k and v are finished
    attention_sum    the sum after attention, once o is finished too

The same numbers pass through the same operations as in one full pass, bit for bit. Shapes: B
sequences, T tokens, D hidden size, O columns of all heads.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from torch import Tensor

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import LayerBlock, StopForwardError, stopping
from paredown.compress.calibrate.workspace import Workspace
from paredown.models.decoder.points import LAYER_POINTS, Tap, last_point

_MIXED = "o_input"
_SUM = "attention_sum"


class Passes:
    """The passes of all windows through one layer's block. Its files stay in the workspace until
    the layer is finished."""

    def __init__(self, block: LayerBlock, workspace: Workspace) -> None:
        self._block = block
        self._workspace = workspace
        self._mixed: ActivationFile | None = None
        self._sum: ActivationFile | None = None

    def observe(self, tap: Tap, points: Collection[str]) -> None:
        """Lets `tap` see the values at `points`, inputs of linear layers, and the sum after
        attention before those that follow it. Everything before the first point is finished, so
        its values may be kept after the pass."""
        first, last = _first_point(points), last_point(points)
        if self._sum is not None:
            self._run(tap, last)
        elif _is_after(first, _SUM):
            kept = self._kept(_SUM, self._block.spec.hidden_size)
            kept.write(self._sums(tap, last), lasting=False)
            self._drop_mixed()
            self._sum = kept
        elif first == _MIXED:
            kept = self._kept(_MIXED, self._block.layer.spec.attention.query_size)
            kept.write(self._mixtures(tap, last), lasting=False)
            self._mixed = kept
        else:
            self._block.run(tap, stop_after=last)

    def outputs(self) -> Iterator[Tensor]:
        """Yields the layer's current outputs, [B, T, D] each."""
        for sum_BTD, x_BTD in self._known_sums():
            yield self._block.layer.add_mlp(sum_BTD, x_BTD)

    def close(self) -> None:
        """Removes the kept files."""
        self._drop_mixed()
        if self._sum is not None:
            self._sum.path.unlink()
            self._sum = None

    def _run(self, tap: Tap, last: str) -> None:
        with self._block.tapped(stopping(tap, last)):
            for sum_BTD, x_BTD in self._known_sums():
                tap(_SUM, sum_BTD)
                with suppress(StopForwardError):
                    self._block.layer.add_mlp(sum_BTD, x_BTD)

    def _sums(self, tap: Tap, last: str) -> Iterator[Tensor]:
        """Yields the sums after attention; `tap` sees the pass up to `last`."""
        for sum_BTD, x_BTD in self._known_sums():
            tap(_SUM, sum_BTD)
            with self._block.tapped(stopping(tap, last)), suppress(StopForwardError):
                self._block.layer.add_mlp(sum_BTD, x_BTD)
            yield sum_BTD

    def _mixtures(self, tap: Tap, last: str) -> Iterator[Tensor]:
        """Yields the outputs of attention; `tap` sees the pass up to `last`."""
        block = self._block
        for x_BTD in block.inputs():
            mixed_BTO = self._mix(x_BTD)
            with block.tapped(stopping(tap, last)), suppress(StopForwardError):
                block.layer.add_mlp(block.layer.add_attention(x_BTD, mixed_BTO), x_BTD)
            yield mixed_BTO

    def _known_sums(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yields the sums after attention, and the layer's inputs if its MLP may need them."""
        block = self._block
        if self._sum is not None:
            sums = self._sum.batches(block.batch_size)
            if block.layer.spec.is_parallel:
                yield from zip(sums, block.inputs(), strict=True)
            else:
                yield from ((sum_BTD, None) for sum_BTD in sums)
        elif self._mixed is not None:
            mixtures = self._mixed.batches(block.batch_size)
            for x_BTD, mixed_BTO in zip(block.inputs(), mixtures, strict=True):
                yield block.layer.add_attention(x_BTD, mixed_BTO), x_BTD
        else:
            for x_BTD in block.inputs():
                yield block.layer.add_attention(x_BTD, self._mix(x_BTD)), x_BTD

    def _mix(self, x_BTD: Tensor) -> Tensor:
        block = self._block
        return block.layer.mix_heads(
            block.layer.normed("attention_norm", x_BTD), block.table, block.mask
        )

    def _kept(self, point: str, num_columns: int) -> ActivationFile:
        inputs = self._block.activations
        shape = (inputs.num_sequences, inputs.num_tokens, num_columns)
        return self._workspace.inside(self._block.layer.index, point, shape)

    def _drop_mixed(self) -> None:
        if self._mixed is not None:
            self._mixed.path.unlink()
            self._mixed = None


def _first_point(points: Iterable[str]) -> str:
    """Returns the first of these points that a pass reaches; an expert's inputs come after
    "mlp_input"."""
    return min(("mlp_input" if "." in point else point for point in points), key=LAYER_POINTS.index)


def _is_after(point: str, other: str) -> bool:
    return LAYER_POINTS.index(point) > LAYER_POINTS.index(other)
