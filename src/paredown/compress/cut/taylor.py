"""Taylor scores of neurons: by how much the loss would change, to first order, without them (arXiv
1906.10771).

For a neuron's outputs a and the loss of each window, the score is the mean over windows of
|sum over tokens of a dL/da|. The gradient goes back through one layer at a time: the inputs of all
layers are on disk, and each layer is computed again with gradients.

Shapes: B windows (one at a time), T tokens, D hidden size, V vocabulary, I neurons.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import load_block
from paredown.compress.calibrate.workspace import Workspace
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.attention import capped
from paredown.models.decoder.norms import make_norm
from paredown.models.decoder.points import input_point
from paredown.models.decoder.read import read_tables
from paredown.spec.experts import split_role

# Windows beyond these hardly move the scores, and the inputs of all layers lie on disk.
MOST_WINDOWS = 32
Scores = dict[tuple[int, str], Tensor]


def neuron_scores(
    source: Checkpoint,
    windows_NT: Tensor,
    embedded: Iterator[Tensor],
    workspace: Workspace,
    report: Callable[[int], None],
) -> Scores:
    """Returns the scores [I] of the inputs of each `down`, by layer and role. `embedded` yields the
    inputs of the first layer, one window or more at a time. `report` is called with the number of
    layers that were passed forth and back."""
    num_layers = source.spec.num_layers
    windows_NT = windows_NT[:MOST_WINDOWS]
    shape = (*windows_NT.shape, source.spec.hidden_size)
    files = [workspace.inside(layer, "taylor", shape) for layer in range(num_layers + 1)]
    files[0].write(_first(embedded, windows_NT.shape[0]), lasting=False)
    with torch.inference_mode(False), torch.no_grad():
        for layer in range(num_layers):
            report(layer)
            block = load_block(source, layer, files[layer])
            outputs = (block.layer(x, block.table, block.mask) for x in files[layer].batches(1))
            files[layer + 1].write(outputs, lasting=False)
    gradients = files[num_layers]
    scores: Scores = {}
    with torch.inference_mode(False), torch.enable_grad():
        windows_NT = windows_NT.clone()  # a normal tensor, wherever it was made
        gradients.write(_last_gradients(source, files[num_layers], windows_NT), lasting=False)
        for layer in reversed(range(num_layers)):
            report(2 * num_layers - layer - 1)
            found = _LayerScores(source, layer, files[layer])
            files[layer].write(found.gradients(gradients), lasting=False)
            gradients.path.unlink()
            gradients = files[layer]
            scores |= found.scores()
    gradients.path.unlink()
    return scores


def _first(batches: Iterator[Tensor], num: int) -> Iterator[Tensor]:
    for batch_BTD in batches:
        if num <= 0:
            return
        yield batch_BTD[:num]
        num -= batch_BTD.shape[0]


class _LayerScores:
    """Goes back through one layer, window by window."""

    def __init__(self, source: Checkpoint, index: int, inputs: ActivationFile) -> None:
        self._index = index
        self._block = load_block(source, index, inputs)
        shapes = source.spec.linear_shapes(index)
        self._roles = {input_point(role): role for role in shapes if split_role(role)[1] == "down"}
        self._sums = {role: torch.zeros(shapes[role][1]) for role in self._roles.values()}
        self._inputs = inputs

    def gradients(self, gradients: ActivationFile) -> Iterator[Tensor]:
        """Yields the gradients of the layer's inputs from those of its outputs."""
        block = self._block
        pairs = zip(self._inputs.batches(1), gradients.batches(1), strict=True)
        for x_BTD, gradient_BTD in pairs:
            neurons: dict[str, Tensor] = {}

            def tap(point: str, x: Tensor, neurons: dict[str, Tensor] = neurons) -> Tensor:
                if point in self._roles:
                    x.retain_grad()
                    neurons[self._roles[point]] = x
                return x

            with torch.enable_grad(), block.tapped(tap):
                x_BTD.requires_grad_()
                block.layer(x_BTD, block.table, block.mask).backward(gradient_BTD)
            for role, a in neurons.items():
                assert a.grad is not None
                self._sums[role] += (a.detach() * a.grad).flatten(0, -2).sum(0).abs()
            assert x_BTD.grad is not None
            yield x_BTD.grad

    def scores(self) -> Scores:
        num_windows = self._inputs.num_sequences
        return {(self._index, role): total / num_windows for role, total in self._sums.items()}


def _last_gradients(
    source: Checkpoint, outputs: ActivationFile, windows_NT: Tensor
) -> Iterator[Tensor]:
    """Yields the gradients of each window's mean loss for the outputs of the last layer."""
    spec = source.spec
    tables = read_tables(source)
    norm = make_norm(spec.final_norm, spec.hidden_size)
    norm.load_state_dict({key: tables[f"final_norm.{key}"] for key in norm.state_dict()})
    norm.requires_grad_(False)
    output_VD = tables["embedding.weight" if spec.is_tied else "output.weight"]
    bias_V = tables.get("output.bias")
    for x_BTD, ids_T in zip(outputs.batches(1), windows_NT, strict=True):
        with torch.enable_grad():
            x_BTD.requires_grad_()
            logits_TV = functional.linear(norm(x_BTD), output_VD, bias_V)[0, :-1]
            logits_TV = logits_TV * spec.present_output.multiplier
            if spec.present_output.soft_cap is not None:
                logits_TV = capped(logits_TV, spec.present_output.soft_cap)
            loss = functional.cross_entropy(logits_TV, ids_T[1:])
        (gradient_BTD,) = torch.autograd.grad(loss, x_BTD)
        yield gradient_BTD
