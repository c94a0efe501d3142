"""Finds the importance of columns by passing a text through the unchanged model, with one
transformer layer in memory at a time.

A workspace keeps finished layers, so that a killed run can resume (calibrate/workspace.py).
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from paredown.compress.calibrate.block import LayerBlock, batch_size, load_block
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.memory import predict_memory
from paredown.compress.calibrate.moments import inputs_not_finite
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.importance import ColumnImportance, Importance
from paredown.errors import naming
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.points import input_point
from paredown.models.decoder.read import embed_tokens, load_final_norm
from paredown.models.roles import linear_roles
from paredown.progress import OnProgress

_SUMS, _ROWS = "sum_squares", "num_rows"


class SquareSum:
    """The sum of squares of the rows so far, by column, in double precision."""

    def __init__(self, num_columns: int) -> None:
        self._sums_I = torch.zeros(num_columns, dtype=torch.float64)
        self.num_rows = 0

    def add(self, x: Tensor) -> None:
        """Adds the rows of `x` [.., I]. Raises CheckpointError if one is not finite."""
        x_NI = x.reshape(-1, x.shape[-1]).double()
        sums_I = x_NI.square().sum(dim=0)
        if not bool(torch.isfinite(sums_I).all()):
            raise inputs_not_finite("NaN or infinity")
        self._sums_I += sums_I
        self.num_rows += x_NI.shape[0]

    def tensors(self, module: str) -> dict[str, StoredTensor]:
        """Returns the tensors that the workspace keeps of it."""
        sums_I = self._sums_I.float().numpy()
        rows = np.array([self.num_rows], np.float32)
        return {
            f"{module}.{_SUMS}": StoredTensor(dtype="F32", array=sums_I),
            f"{module}.{_ROWS}": StoredTensor(dtype="F32", array=rows),
        }


def importance_walk(
    source: Checkpoint, calibration: Calibration, workspace: Workspace, on_progress: OnProgress
) -> Importance:
    """Returns the importance of the columns of every linear layer. Raises CapacityError before any
    work if it does not fit in memory, and CheckpointError
    for inputs that are not finite."""
    spec = source.spec
    assert spec.encoder is None, "GGUF, which importance is for, has no encoder-decoders"
    predict_memory(
        spec, calibration.num_tokens, needs_hessian=False, has_transforms=False
    ).require()
    shape = (calibration.num_sequences, calibration.num_tokens, spec.hidden_size)
    with torch.inference_mode():
        if workspace.num_finished == 0:
            workspace.inputs(0, shape).write(_embedded(source, calibration))
        for index in range(workspace.num_finished, spec.num_layers):
            on_progress(f"looking at layer {index + 1}", index / spec.num_layers)
            block = load_block(source, index, workspace.inputs(index, shape))
            source.release()
            sums: dict[str, SquareSum] = {}
            workspace.inputs(index + 1, shape).write(_outputs(block, sums))
            workspace.finish(_layer_tensors(source, index, sums), [])
        if workspace.num_finished == spec.num_layers:
            seen = _output_inputs(source, workspace, shape)
            names = source.names
            output = names.embedding if spec.is_tied else names.output
            workspace.finish(seen.tensors(output), [])
    return _read(workspace, calibration)


def _embedded(source: Checkpoint, calibration: Calibration) -> Iterator[Tensor]:
    size = batch_size(source.spec, calibration.num_tokens)
    for start in range(0, calibration.num_sequences, size):
        yield embed_tokens(source, calibration.windows_NT[start : start + size])


def _outputs(block: LayerBlock, sums: dict[str, SquareSum]) -> Iterator[Tensor]:
    """Yields the layer's outputs; `sums` records the inputs of its linear layers, by point."""
    spec, index = block.spec, block.layer.index
    shapes = spec.linear_shapes(index)
    widths = {input_point(role): columns for role, (_, columns) in shapes.items()}

    def tap(point: str, x: Tensor) -> Tensor:
        if point in widths:
            with naming(f"layer {index}, {point}"):
                sums.setdefault(point, SquareSum(widths[point])).add(x)
        return x

    with block.tapped(tap):
        for x_BTD in block.inputs():
            yield block.layer(x_BTD, block.table, block.mask)


def _layer_tensors(
    source: Checkpoint, index: int, sums: dict[str, SquareSum]
) -> dict[str, StoredTensor]:
    shapes = source.spec.linear_shapes(index)
    found: dict[str, StoredTensor] = {}
    for role in linear_roles(source.spec, index):
        seen = sums.get(input_point(role)) or SquareSum(shapes[role][1])
        found |= seen.tensors(source.linear_name(role, index))
    return found


def _output_inputs(
    source: Checkpoint, workspace: Workspace, shape: tuple[int, int, int]
) -> SquareSum:
    """Returns the sum over the inputs of the output layer."""
    spec = source.spec
    norm = load_final_norm(source)
    seen = SquareSum(spec.hidden_size)
    inputs = workspace.inputs(spec.num_layers, shape)
    with naming("the output layer"):
        for batch_BTD in inputs.batches(batch_size(spec, inputs.num_tokens)):
            seen.add(norm(batch_BTD))
    return seen


def _read(workspace: Workspace, calibration: Calibration) -> Importance:
    tensors = workspace.tensors()
    modules = {
        module: ColumnImportance(
            sum_squares_I=tensor.to_float32().copy(),
            num_rows=float(tensors[f"{module}.{_ROWS}"].to_float32()[0]),
        )
        for name, tensor in tensors.items()
        if name.endswith(f".{_SUMS}")
        for module in [name.removesuffix(f".{_SUMS}")]
    }
    return Importance(
        modules=modules,
        text=calibration.source,
        num_windows=calibration.num_sequences,
        num_tokens=calibration.num_tokens,
    )
