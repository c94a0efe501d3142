"""The original's hidden states beside those of the cut model, layer by layer, kept on disk.

A layer that stays aims at them: its attention at the original's sum after attention, its MLP at
what the original has before the next layer that stays, removed layers in between included.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from torch import Tensor

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import LayerBlock, StopForwardError, load_block, stopping
from paredown.compress.calibrate.workspace import Workspace
from paredown.models.checkpoint import Checkpoint

# The names of its files in the workspace.
_INPUTS, _ATTENTION, _MLP = "original", "original_attention", "original_mlp"

Shape = tuple[int, int, int]


class OriginalStream:
    """`number` counts the layers that stay; the files are named after it."""

    def __init__(self, source: Checkpoint, workspace: Workspace, shape: Shape) -> None:
        self._source = source
        self._workspace = workspace
        self._shape = shape

    def inputs(self, number: int) -> ActivationFile:
        return self._workspace.inside(number, _INPUTS, self._shape)

    def start(self, embedded: ActivationFile, first: int, number: int) -> None:
        """Writes the inputs of layer `first` from the embedded text."""
        inputs = self.inputs(number)
        inputs.write(embedded.batches(1))
        self._pass_on(range(first), inputs)

    def advance(self, block: LayerBlock, following: int, number: int) -> "Targets":
        """Passes through `block`, whose weights must be the original's, and the layers between it
        and the layer `following`. Returns the targets of the block's layer."""
        inputs, outputs = self.inputs(number), self.inputs(number + 1)
        attention = self._workspace.inside(number, _ATTENTION, self._shape)
        norms, mlp = block.layer.spec.norms, outputs
        if not any((norms.attention_output, norms.mlp_output, norms.attention_sum, norms.mlp_sum)):
            attention.write(_values(block, inputs, "attention_sum"), lasting=False)
            size = block.batch_size
            pairs = zip(attention.batches(size), inputs.batches(size), strict=True)
            outputs.write(block.layer.add_mlp(sum_BTD, x_BTD) for sum_BTD, x_BTD in pairs)
        else:
            mlp = self._workspace.inside(number, _MLP, self._shape)
            attention.write(_values(block, inputs, "attention_output"), lasting=False)
            mlp.write(_values(block, inputs, "mlp_output"), lasting=False)
            outputs.write(_outputs(block, inputs))
        self._pass_on(range(block.layer.index + 1, following), outputs)
        return Targets(attention=attention, mlp=mlp)

    def close(self, number: int) -> None:
        """Removes the files of a layer that is finished."""
        for name in (_INPUTS, _ATTENTION, _MLP):
            self._workspace.inside(number, name, self._shape).path.unlink(missing_ok=True)

    def _pass_on(self, layers: range, file: ActivationFile) -> None:
        """Passes a file's values through these layers of the original."""
        for index in layers:
            block = load_block(self._source, index, file)
            self._source.release()
            file.write(_outputs(block, file))


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The files that a layer's attention and its MLP aim at: residuals, or their own outputs where
    a norm follows these or the sums."""

    attention: ActivationFile
    mlp: ActivationFile


def _outputs(block: LayerBlock, inputs: ActivationFile) -> Iterator[Tensor]:
    """Yields the layer's outputs, batch by batch."""
    for x_BTD in inputs.batches(block.batch_size):
        yield block.layer(x_BTD, block.table, block.mask)


def _values(block: LayerBlock, inputs: ActivationFile, point: str) -> Iterator[Tensor]:
    """Yields the values at a point of the layer, batch by batch; a pass ends there."""
    seen: list[Tensor] = []

    def tap(at: str, x: Tensor) -> Tensor:
        if at == point:
            seen.append(x)
        return x

    for x_BTD in inputs.batches(block.batch_size):
        with block.tapped(stopping(tap, point)), suppress(StopForwardError):
            block.layer(x_BTD, block.table, block.mask)
        yield seen.pop()
