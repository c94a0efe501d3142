"""Cuts each layer alone: its inputs are the original's, and it aims at what it gave before. Nothing
becomes smaller here. Columns that go are zero, which gives the same sums, so that one layer's cut
can be measured in the original."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from paredown.compress.calibrate.activation_file import ActivationFile
from paredown.compress.calibrate.block import LayerBlock, load_block
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.passes import Passes
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.cut.embedded import embedded
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.compress.cut.layer_work import LayerWork
from paredown.compress.cut.method import Survey
from paredown.compress.cut.survey import needs_survey
from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import linear_roles
from paredown.progress import OnProgress
from paredown.spec.experts import split_role


def cut_alone(
    source: Checkpoint,
    cut: CutNeurons | CutHeads,
    calibration: Calibration,
    workspace: Workspace,
    on_progress: OnProgress,
) -> list[dict[str, Tensor]]:
    """Returns for each layer the weights [O, I] that read what is cut, by role: "o", or "down" of
    the MLP and of every expert. `workspace` must be empty. Raises CheckpointError, with the
    module's name, for weights or inputs that are not finite."""
    assert not needs_survey(cut), "a layer alone has no gradient of the model's loss"
    num_layers = source.spec.num_layers
    survey = Survey(layers=tuple(range(num_layers)))
    found = []
    with torch.inference_mode():
        first = _inputs(source, calibration, workspace, 0)
        first.write(embedded(source, calibration), lasting=False)
        for index in range(num_layers):
            on_progress(f"layer {index + 1}: {cut.unit}", index / num_layers)
            block = load_block(source, index, _inputs(source, calibration, workspace, index))
            source.release()
            after = _inputs(source, calibration, workspace, index + 1)
            after.write(_outputs(block), lasting=False)
            passes = Passes(block, workspace)
            work = LayerWork(source, cut, block, passes, None)
            work.run(survey, is_changed=False, aims_further=False)
            passes.close()
            block.activations.path.unlink()
            found.append({role: _weight(block, role) for role in _reading(source, index, cut)})
    return found


def _inputs(
    source: Checkpoint, calibration: Calibration, workspace: Workspace, layer: int
) -> ActivationFile:
    shape = (calibration.num_sequences, calibration.num_tokens, source.spec.hidden_size)
    return workspace.inputs(layer, shape)


def _outputs(block: LayerBlock) -> Iterator[Tensor]:
    for x_BTD in block.inputs():
        yield block.layer(x_BTD, block.table, block.mask)


def _reading(source: Checkpoint, layer: int, cut: CutNeurons | CutHeads) -> list[str]:
    """Returns the roles whose columns are cut."""
    own = "o" if isinstance(cut, CutHeads) else "down"
    return [role for role in linear_roles(source.spec, layer) if split_role(role)[1] == own]


def _weight(block: LayerBlock, role: str) -> Tensor:
    module = block.layer.get_submodule(role)
    assert isinstance(module, nn.Linear)
    return module.weight.data
