"""The walk of a cut: one transformer layer at a time, with the inputs that the cut layers before it
give, beside those of the original.

Until the first change both are the same, and layers keep their bits. From then on o and down of
each layer aim at the original's residual (compensation.py). A killed walk goes on from its
workspace (compress/calibrate/workspace.py), whose first entry is the survey.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from paredown.compress.calibrate.block import load_block
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.passes import Passes
from paredown.compress.calibrate.workspace import Workspace
from paredown.compress.cut.embedded import embedded
from paredown.compress.cut.kept_units import KeptUnits
from paredown.compress.cut.layer_work import LayerWork
from paredown.compress.cut.method import Cut, Survey
from paredown.compress.cut.original_stream import OriginalStream, Shape
from paredown.compress.cut.survey import make_survey, needs_survey, read_survey, survey_tensors
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

# Names of kept units in the workspace begin with it, which no tensor's name does.
_KEPT = "kept "
# The share of a walk that its survey takes.
_SURVEY_SHARE = 0.4


@dataclass(frozen=True, kw_only=True)
class CutPlan:
    """The task of a walk."""

    source: Checkpoint
    cut: Cut
    calibration: Calibration

    @property
    def shape(self) -> Shape:
        calibration = self.calibration
        hidden_size = self.source.spec.hidden_size
        return calibration.num_sequences, calibration.num_tokens, hidden_size


@dataclass(frozen=True, kw_only=True)
class Walked:
    """The kept units of each layer that stays, and the new tensors by their names in the source."""

    kept: tuple[KeptUnits, ...]
    made: dict[str, StoredTensor]


def walk(plan: CutPlan, workspace: Workspace, on_progress: OnProgress) -> Walked:
    """Finishes every layer that `workspace` has not finished. Raises CheckpointError, with the
    module's name, for weights or inputs that are not finite."""
    with torch.inference_mode():
        before = _SURVEY_SHARE if needs_survey(plan.cut) else 0.0
        if workspace.num_finished == 0:
            survey = make_survey(
                plan.source,
                plan.cut,
                plan.calibration,
                workspace,
                lambda what, share: on_progress(what, before * share),
            )
            workspace.finish(survey_tensors(survey), list(survey.notes))
        survey = read_survey(workspace.tensors())

        def report(what: str, share: float) -> None:
            on_progress(what, before + (1 - before) * share)

        _Walk(plan, workspace, survey, report).run()
    tensors = workspace.tensors()
    return Walked(
        kept=tuple(_read_kept(tensors, layer) for layer in survey.layers),
        made={name: one for name, one in tensors.items() if name in plan.source.tensors},
    )


class _Walk:
    """The file of the inputs of the n-th layer that stays has number n + 1."""

    def __init__(
        self, plan: CutPlan, workspace: Workspace, survey: Survey, on_progress: OnProgress
    ) -> None:
        self._plan = plan
        self._workspace = workspace
        self._survey = survey
        self._report = on_progress
        compensation = plan.cut.compensation
        self._follows = compensation is not None and compensation.follows_original
        self._original = OriginalStream(plan.source, workspace, plan.shape)
        # Whether the layers so far give something else than the original.
        self._is_changed = False

    def run(self) -> None:
        layers, workspace = self._survey.layers, self._workspace
        if workspace.num_finished == 1:
            first = workspace.inputs(1, self._plan.shape)
            first.write(embedded(self._plan.source, self._plan.calibration))
            if self._follows:
                self._original.start(first, layers[0], 1)
        followers = [*layers[1:], self._plan.source.spec.num_layers]
        self._is_changed = layers[0] > 0
        for place, (index, following) in enumerate(zip(layers, followers, strict=True)):
            if place + 1 >= workspace.num_finished:
                self._report(f"layer {index + 1}: {self._plan.cut.unit}", place / len(layers))
                self._layer(place + 1, index, following)
            is_whole = _is_whole(workspace.tensors(), index)
            self._is_changed = self._is_changed or following > index + 1 or not is_whole

    def _layer(self, number: int, index: int, following: int) -> None:
        """Cuts a layer, writes the inputs of the next one, and finishes it."""
        plan, workspace = self._plan, self._workspace
        block = load_block(plan.source, index, workspace.inputs(number, plan.shape))
        plan.source.release()
        targets = self._original.advance(block, following, number) if self._follows else None
        passes = Passes(block, workspace)
        work = LayerWork(plan.source, plan.cut, block, passes, targets)
        result = work.run(
            self._survey, is_changed=self._is_changed, aims_further=following > index + 1
        )
        workspace.inputs(number + 1, plan.shape).write(passes.outputs())
        passes.close()
        workspace.finish(result.tensors | _kept_tensors(result.kept), result.notes)
        self._original.close(number)


def _is_whole(tensors: Mapping[str, StoredTensor], layer: int) -> bool:
    """Whether nothing of the layer was cut."""
    return not any(name.startswith(f"{_KEPT}{layer} ") for name in tensors)


def _kept_tensors(kept: KeptUnits) -> dict[str, StoredTensor]:
    """Returns the kept units as the workspace holds them."""
    parts = {f"neurons {owner}": indices for owner, indices in kept.neurons.items()}
    if kept.heads is not None:
        parts["heads"] = kept.heads
    if kept.experts is not None:
        parts["experts"] = kept.experts
    return {
        f"{_KEPT}{kept.layer} {name}": StoredTensor(dtype="I64", array=indices.astype(np.int64))
        for name, indices in parts.items()
    }


def _read_kept(tensors: Mapping[str, StoredTensor], layer: int) -> KeptUnits:
    start = f"{_KEPT}{layer} "
    parts = {
        name.removeprefix(start): tensor.array.astype(np.int64)
        for name, tensor in tensors.items()
        if name.startswith(start)
    }
    neurons = {
        name.removeprefix("neurons "): indices
        for name, indices in parts.items()
        if name.startswith("neurons ")
    }
    return KeptUnits(
        layer=layer,
        heads=parts.get("heads"),
        neurons=neurons,
        experts=parts.get("experts"),
    )
