"""Gradients: how the loss of the whole model depends on each weight, over the calibration windows.

The loss of a window is the mean cross-entropy of its next tokens. A forward pass keeps the input of
every layer on disk. The backward pass then takes one layer after the other, from the last to the
first: it runs the layer again on each window, and passes the gradients of its inputs on to the
layer before. Memory so holds one layer, and no more of a window than one layer computes.

A workspace keeps finished steps, so that a killed run can resume (workspace.py). Step 0 is the
output layer, step k the k-th layer from the end; activations are numbered by the step that reads
them. Shapes: B sequences, T tokens, D hidden size, V vocabulary.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.gradient_disk import predict_gradient_disk
from paredown.compress.calibrate.gradient_memory import logits_tokens, predict_gradient_memory
from paredown.compress.calibrate.source_digest import source_digest
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.prune.method import Gradients
from paredown.errors import CheckpointError, ConfigError, naming
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.read import embed_tokens, load_layer, present
from paredown.models.decoder.stored_rows import stored_rows
from paredown.models.roles import linear_roles
from paredown.progress import OnProgress

_MEAN, _SQUARE, _LARGEST = "gradient.mean", "gradient.square", "gradient.largest"
# A window's first token has no loss.
_LEAST_TOKENS = 2
# The activation file of a step's gradients of its outputs.
_GRADIENT = "gradient"
# The share of the forward pass in the whole.
_FORWARD_SHARE = 0.25


def gradient_workspace_path(output: Path) -> Path:
    """Returns the hidden path beside the future checkpoint."""
    return output.absolute().with_name(f".{output.name}.gradients")


def gradient_fingerprint(
    source: Checkpoint, calibration: Calibration, modules: Collection[str]
) -> str:
    """Returns a fingerprint of all that the gradients depend on."""
    names = "\n".join(sorted(modules))
    parts = ("gradients", source_digest(source), calibration.digest, names)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class StoredGradients(Mapping[str, Gradients]):
    """The gradients by module name, in the workspace's files; a module's are read when asked
    for."""

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self._tensors = tensors
        ending = f".{_MEAN}"
        self._modules = [name.removesuffix(ending) for name in tensors if name.endswith(ending)]

    def __getitem__(self, module: str) -> Gradients:
        mean_OI, square_OI, largest_OI = (
            torch.from_numpy(self._tensors[f"{module}.{kind}"].to_float32())
            for kind in (_MEAN, _SQUARE, _LARGEST)
        )
        return Gradients(mean_OI=mean_OI, square_OI=square_OI, largest_OI=largest_OI)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def collect_gradients(
    source: Checkpoint,
    calibration: Calibration,
    modules: Collection[str],
    workspace: Workspace,
    on_progress: OnProgress,
) -> StoredGradients:
    """Returns the gradients of the named linear modules: those of the layers, and an output layer
    of its own. They are there as long as the workspace.

    Raises ConfigError for windows of a single token, CapacityError before any work if it does not
    fit in memory or on the disk, and CheckpointError for gradients that are not finite.
    """
    if calibration.num_tokens < _LEAST_TOKENS:
        raise ConfigError(
            "a window of one token has no next token to predict, and so no gradient",
            seen=f"{calibration.num_tokens} token",
            remedy=f"Use windows of at least {_LEAST_TOKENS} tokens (--calibration-tokens).",
        )
    predict_gradient_memory(source.spec, calibration.num_tokens).require()
    predict_gradient_disk(source, calibration, modules).require(workspace.path)
    with torch.inference_mode(False):
        return _Collection(source, calibration, modules, workspace, on_progress).run()


class _Sums:
    """The sums over windows for one module."""

    def __init__(self, parameters: list[Tensor], num_blocks: int) -> None:
        self._parameters = parameters
        self._num_blocks = num_blocks
        shape = (sum(len(one) for one in parameters), parameters[0].shape[1])
        self._mean_OI, self._square_OI, self._largest_OI = (torch.zeros(shape) for _ in range(3))

    def add(self, weight: float) -> None:
        """Adds the gradients of a window, whose share in the mean is `weight`, and frees them."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        if not any(bool(part.any()) for part in parts):
            return
        sizes_OI = stored_rows(parts, self._num_blocks).abs_()
        self._mean_OI.add_(sizes_OI, alpha=weight)
        self._square_OI.addcmul_(sizes_OI, sizes_OI, value=weight)
        torch.maximum(self._largest_OI, sizes_OI, out=self._largest_OI)

    def tensors(self, module: str) -> dict[str, StoredTensor]:
        """Returns the tensors that the workspace keeps. Raises CheckpointError if one is not
        finite."""
        if not bool(torch.isfinite(self._square_OI.sum())):
            with naming(module):
                raise CheckpointError(
                    "the gradients of a linear layer are not finite numbers",
                    seen=f"gradients up to {float(self._largest_OI.max())}",
                    remedy="The checkpoint is damaged or its activations pass the largest float; "
                    "use another one.",
                )
        kinds = {_MEAN: self._mean_OI, _SQUARE: self._square_OI, _LARGEST: self._largest_OI}
        return {
            f"{module}.{kind}": StoredTensor(dtype="F32", array=sums_OI.numpy())
            for kind, sums_OI in kinds.items()
        }


class _Collection:
    def __init__(
        self,
        source: Checkpoint,
        calibration: Calibration,
        modules: Collection[str],
        workspace: Workspace,
        on_progress: OnProgress,
    ) -> None:
        self._source = source
        self._calibration = calibration
        self._modules = modules
        self._workspace = workspace
        self._report = on_progress
        self._num_layers = source.spec.num_layers
        self._shape = (
            calibration.num_sequences,
            calibration.num_tokens,
            source.spec.hidden_size,
        )

    def run(self) -> StoredGradients:
        workspace, num_layers = self._workspace, self._num_layers
        if workspace.num_finished == 0:
            self._pass_forward()
        for step in range(workspace.num_finished, num_layers + 1):
            share = step / (num_layers + 1)
            self._report("gradients", _FORWARD_SHARE + (1 - _FORWARD_SHARE) * share)
            sums: dict[str, _Sums] = {}
            gradients = self._through_output(sums) if step == 0 else self._through(step, sums)
            self._gradients(step + 1).write(gradients)
            tensors: dict[str, StoredTensor] = {}
            for module, one in sums.items():
                tensors |= one.tensors(module)
            workspace.finish(tensors, [])
            self._gradients(step).path.unlink(missing_ok=True)
        self._gradients(num_layers + 1).path.unlink(missing_ok=True)
        return StoredGradients(workspace.tensors())

    def _inputs(self, step: int) -> ActivationFile:
        return self._workspace.inputs(step, self._shape)

    def _gradients(self, step: int) -> ActivationFile:
        return self._workspace.inside(step, _GRADIENT, self._shape)

    def _pass_forward(self) -> None:
        """Writes the inputs of all steps, from the first layer to the output layer."""
        with torch.no_grad():
            for layer in range(self._num_layers + 1):
                self._report("a pass through the model", _FORWARD_SHARE * layer / self._num_layers)
                file = self._inputs(self._num_layers - layer)
                if not file.is_whole():
                    file.write(self._embedded() if layer == 0 else self._outputs(layer - 1))

    def _embedded(self) -> Iterator[Tensor]:
        for window_T in self._calibration.windows_NT:
            yield embed_tokens(self._source, window_T[None])

    def _outputs(self, index: int) -> Iterator[Tensor]:
        layer = self._load(index)
        positions = layer.positions(self._calibration.num_tokens)
        for x_BTD in self._inputs(self._num_layers - index).batches(1):
            yield layer(x_BTD, *positions)

    def _load(self, index: int) -> Layer:
        layer = load_layer(self._source, index)
        layer.is_fused = True
        self._source.release()
        return layer

    def _through(self, step: int, sums: dict[str, _Sums]) -> Iterator[Tensor]:
        """Yields the gradients of a layer's inputs; `sums` records those of its weights."""
        index = self._num_layers - step
        layer = self._load(index)
        sums |= self._layer_sums(layer)
        positions = layer.positions(self._calibration.num_tokens)
        gradients = self._gradients(step).batches(1)
        for x_BTD, gradient_BTD in zip(self._inputs(step).batches(1), gradients, strict=True):
            x_BTD.requires_grad_()
            with torch.enable_grad():
                layer(x_BTD, *positions).backward(gradient_BTD)
            for one in sums.values():
                one.add(1 / self._calibration.num_sequences)
            assert x_BTD.grad is not None
            yield x_BTD.grad

    def _layer_sums(self, layer: Layer) -> dict[str, _Sums]:
        names = self._source.names
        found = {}
        roles = linear_roles(self._source.spec, layer.index)
        for module, fused in names.modules(roles, layer.index).items():
            if module in self._modules:
                weights = [layer.get_parameter(f"{role}.weight") for role in fused]
                for weight in weights:
                    weight.requires_grad_()
                num_blocks = names.num_blocks(fused[0], layer.spec)
                found[module] = _Sums(list(weights), num_blocks)
        return found

    def _through_output(self, sums: dict[str, _Sums]) -> Iterator[Tensor]:
        """Yields the gradients of the last layer's outputs."""
        source = self._source
        table_VD = torch.from_numpy(source.output().dequantize())
        source.release()
        if source.names.output in self._modules and not source.spec.is_tied:
            table_VD.requires_grad_()
            sums[source.names.output] = _Sums([table_VD], 1)
        top = _load_top(source)
        windows = zip(
            self._inputs(0).batches(1), torch.from_numpy(self._calibration.windows_NT), strict=True
        )
        for x_BTD, ids_T in windows:
            x_BTD.requires_grad_()
            for start in range(0, len(ids_T) - 1, logits_tokens(source.spec)):
                end = min(start + logits_tokens(source.spec), len(ids_T) - 1)
                with torch.enable_grad():
                    logits_CV = top.predict(x_BTD[0, start:end], table_VD)
                    loss = functional.cross_entropy(
                        logits_CV, ids_T[start + 1 : end + 1], reduction="sum"
                    )
                    torch.autograd.backward(loss / (len(ids_T) - 1))
            for one in sums.values():
                one.add(1 / self._calibration.num_sequences)
            assert x_BTD.grad is not None
            yield x_BTD.grad


def _load_top(source: Checkpoint) -> Decoder:
    """Returns a decoder of which only the last norm and the output layer's bias are there."""
    with torch.device("meta"):
        top = Decoder(source.spec)
    top.final_norm.load_state_dict(
        {
            key: torch.from_numpy(np.array(present(source.vector(f"final_norm.{key}"))))
            for key in top.final_norm.state_dict()
        },
        assign=True,
    )
    if source.spec.present_output.has_bias:
        bias = torch.from_numpy(np.array(present(source.vector("output.bias"))))
        top.output.bias = nn.Parameter(bias)
    return top.requires_grad_(False)
