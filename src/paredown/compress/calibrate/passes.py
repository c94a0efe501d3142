"""Passes over a layer whose linear layers are finished group by group. Values before the first
unfinished group are kept on disk and not computed again:

    o_input          attention's output, once q, k and v are finished
    attention_sum    the sum after attention, once o is finished too
    cross_output     the sum after cross-attention, once that is finished

The same numbers pass through the same operations as in one full pass, bit for bit. Shapes: B
sequences, T tokens, S tokens of an encoder, D hidden size, O columns of all heads.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat

from torch import Tensor

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import LayerBlock, StopForwardError, stopping
from paredown.compress.calibrate.workspace import Workspace
from paredown.models.decoder.points import ORDERED_POINTS, Tap, last_point

_INPUT, _MIXED, _SUM, _CROSSED = "", "o_input", "attention_sum", "cross_output"
_ENCODED = "cross_encoded"


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """A batch somewhere in the layer: `value` is what its `stage` names, `x_BTD` the layer's input
    where it is still needed, and `encoded_BSD` what cross-attention reads."""

    stage: str
    value: Tensor
    x_BTD: Tensor | None
    encoded_BSD: Tensor | None


class Passes:
    """The passes of all windows through one layer's block. Its files stay in the workspace until
    the layer is finished."""

    def __init__(self, block: LayerBlock, workspace: Workspace) -> None:
        self._block = block
        self._workspace = workspace
        across = (_CROSSED,) if block.layer.spec.cross is not None else ()
        self._stages = (_INPUT, _MIXED, _SUM, *across)
        self._stage = _INPUT
        self._file: ActivationFile | None = None

    def observe(self, tap: Tap, points: Collection[str]) -> None:
        """Lets `tap` see the values at `points`, inputs of linear layers, and the sum after
        attention before those that follow it. Everything before the first point is finished, so
        its values may be kept after the pass."""
        if set(points) == {_ENCODED}:
            self._observe_encoded(tap)
            return
        first, last = _first_point(points), last_point(points)
        stage = self._stage_before(first)
        if self._is_after(stage, self._stage):
            kept = self._kept(stage)
            kept.write(self._passing(stage, tap, last), lasting=False)
            self._keep(stage, kept)
        else:
            for _ in self._passing(self._stage, tap, last):
                pass

    def outputs(self) -> Iterator[Tensor]:
        """Yields the layer's current outputs, [B, T, D] each."""
        layer = self._block.layer
        for batch in self._batches(self._stages[-1]):
            yield layer.add_mlp(batch.value, batch.x_BTD)

    def close(self) -> None:
        """Removes the kept files."""
        self._keep(_INPUT, None)

    def _observe_encoded(self, tap: Tap) -> None:
        for encoded_BSD in self._block.encoded():
            assert encoded_BSD is not None
            tap(_ENCODED, encoded_BSD)

    def _passing(self, stage: str, tap: Tap, last: str) -> Iterator[Tensor]:
        """Yields the values at a stage; `tap` sees the pass from there up to `last`."""
        for batch in self._batches(stage):
            with self._block.tapped(stopping(tap, last)), suppress(StopForwardError):
                if stage == _SUM:
                    self._block.layer.tap(_SUM, batch.value)
                for _ in self._later(batch):
                    pass
            yield batch.value

    def _later(self, batch: _Batch) -> Iterator[_Batch]:
        """Runs the rest of the layer; yields the batch at each later stage."""
        for stage in self._stages[self._stages.index(batch.stage) + 1 :]:
            batch = self._next(batch, stage)
            yield batch
        self._block.layer.add_mlp(batch.value, batch.x_BTD)

    def _batches(self, stage: str) -> Iterator[_Batch]:
        """Yields all batches at a stage, computed from what is kept."""
        for batch in self._known():
            for one in self._stages[self._stages.index(batch.stage) + 1 :]:
                if self._is_after(one, stage):
                    break
                batch = self._next(batch, one)
            yield batch

    def _next(self, batch: _Batch, stage: str) -> _Batch:
        """Computes the next stage of a batch."""
        layer, value = self._block.layer, batch.value
        if stage == _MIXED:
            normed_BTD = layer.normed("attention_norm", value)
            value = layer.mix_heads(normed_BTD, self._block.table, self._block.mask)
        elif stage == _SUM:
            assert batch.x_BTD is not None
            value = layer.add_attention(batch.x_BTD, value)
        else:
            assert batch.encoded_BSD is not None
            value = layer.add_cross(value, batch.encoded_BSD)
        return _Batch(stage=stage, value=value, x_BTD=batch.x_BTD, encoded_BSD=batch.encoded_BSD)

    def _known(self) -> Iterator[_Batch]:
        """Yields the kept values; without any, the layer's inputs."""
        block, stage = self._block, self._stage
        kept = None if self._file is None else self._file.batches(block.batch_size)
        reads_inputs = block.layer.spec.is_parallel or not self._is_after(stage, _MIXED)
        inputs: Iterator[Tensor | None] = block.inputs() if reads_inputs else repeat(None)
        for x_BTD, encoded_BSD in zip(inputs, block.encoded(), strict=False):
            value = x_BTD if kept is None else next(kept)
            assert value is not None
            yield _Batch(stage=stage, value=value, x_BTD=x_BTD, encoded_BSD=encoded_BSD)

    def _stage_before(self, point: str) -> str:
        """Returns the last stage whose value is known when everything before `point` is
        finished."""
        place = ORDERED_POINTS.index(point)
        known = [one for one in self._stages[1:] if ORDERED_POINTS.index(one) <= place]
        return known[-1] if known else _INPUT

    def _is_after(self, stage: str, other: str) -> bool:
        return self._stages.index(stage) > self._stages.index(other)

    def _kept(self, stage: str) -> ActivationFile:
        inputs, block = self._block.activations, self._block
        heads_size = block.layer.spec.attention.query_size
        num_columns = heads_size if stage == _MIXED else block.spec.hidden_size
        shape = (inputs.num_sequences, inputs.num_tokens, num_columns)
        return self._workspace.inside(self._workspace.num_finished, stage, shape)

    def _keep(self, stage: str, file: ActivationFile | None) -> None:
        """Replaces what is kept."""
        if self._file is not None:
            self._file.path.unlink()
        self._stage, self._file = stage, file


def _first_point(points: Iterable[str]) -> str:
    """Returns the first of these points that a pass reaches; an expert's inputs come after
    "mlp_input"."""
    return min(
        ("mlp_input" if "." in point else point for point in points), key=ORDERED_POINTS.index
    )
