"""The survey: a first pass of the calibration text through the original, for cuts that must know
the whole model before they begin.

Layers are chosen among all layers, and Taylor scores need the gradient of the loss. Other cuts look
at one layer at a time and need no survey.
"""

from collections.abc import Mapping

import numpy as np
import torch

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.cut.embedded import embedded
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.layer_costs import LayerCosts
from paredown.compress.cut.layers import CutLayers, kept_layers
from paredown.compress.cut.method import Cut, Survey
from paredown.compress.cut.taylor import neuron_scores
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

_LAYERS, _SCORES = "survey layers", "survey scores "


def needs_survey(cut: Cut) -> bool:
    """Whether the cut needs a pass over the whole model before it begins."""
    is_taylor = isinstance(cut, CutNeurons) and cut.score == "taylor" and cut.share > 0
    return is_taylor or isinstance(cut, CutLayers)


def make_survey(
    source: Checkpoint,
    cut: Cut,
    calibration: Calibration,
    workspace: Workspace,
    on_progress: OnProgress,
) -> Survey:
    """Makes the survey that the cut needs."""
    num_layers = source.spec.num_layers
    if isinstance(cut, CutLayers):
        costs = LayerCosts(source, cut, calibration, workspace).run(on_progress)
        kept = kept_layers(costs, cut.num)
        gone = ", ".join(
            f"{layer} ({costs[layer]:.3g})" for layer in range(num_layers) if layer not in kept
        )
        return Survey(layers=kept, notes=(f"layers removed, with what each changes: {gone}",))
    scores = {}
    if needs_survey(cut):
        scores = neuron_scores(
            source,
            torch.from_numpy(calibration.windows_NT),
            embedded(source, calibration),
            workspace,
            lambda done: on_progress("gradients of the neurons", done / num_layers / 2),
        )
    return Survey(layers=tuple(range(num_layers)), scores=scores)


def survey_tensors(survey: Survey) -> dict[str, StoredTensor]:
    """Returns the survey as the workspace holds it."""
    layers = np.array(survey.layers, np.int64)
    return {_LAYERS: StoredTensor(dtype="I64", array=layers)} | {
        f"{_SCORES}{layer} {role}": StoredTensor(dtype="F32", array=scores_I.float().numpy())
        for (layer, role), scores_I in survey.scores.items()
    }


def read_survey(tensors: Mapping[str, StoredTensor]) -> Survey:
    """Reads the survey back."""
    scores = {}
    for name, tensor in tensors.items():
        if name.startswith(_SCORES):
            layer, role = name.removeprefix(_SCORES).split(" ")
            scores[int(layer), role] = torch.from_numpy(tensor.to_float32().copy())
    return Survey(layers=tuple(map(int, tensors[_LAYERS].array)), scores=scores)
