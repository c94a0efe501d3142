"""Runs a recipe stage by stage, each from one folder to the next: cut, prune, recover, quantize,
train.

A recipe of one pass writes its output at once. Others keep the folders of finished stages beside
the output (jobs/stages.py), so that a killed run goes on.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import torch

from paredown.compress.calibrate.source_digest import source_digest
from paredown.compress.calibrate.workspace import workspace_path
from paredown.compress.checked_recipe import check_recipe
from paredown.compress.compress import compress
from paredown.compress.compress_result import CompressResult, MadeLayers
from paredown.compress.cut.cut import cut
from paredown.compress.folder_job import FinishCompress
from paredown.compress.recipe import Stage
from paredown.distill.recover import RecoverConfig, RecoverResult, recover
from paredown.errors import ConfigError
from paredown.jobs.measured_recipe import measured_recipe
from paredown.jobs.noted import noted
from paredown.jobs.recipe_texts import RecipeTexts
from paredown.jobs.staged_recipe import StagedRecipe, train_config
from paredown.jobs.stages import Stages, open_stages, stages_path
from paredown.jobs.train_codes import CodeTraining
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.locked_folder import check_locked_folder
from paredown.models.files.output_folder import check_output_folder
from paredown.progress import OnProgress


def run_recipe(
    staged: StagedRecipe,
    output: Path,
    *,
    texts: RecipeTexts,
    overwrite: bool = False,
    layers: MadeLayers | None = None,
    on_progress: OnProgress | None = None,
    finish: FinishCompress | None = None,
) -> CompressResult:
    """Writes what the recipe makes of its source to the folder `output`, as `compress` does.
    `layers` are for a recipe of one pass alone. Raises what compress, cut and recover raise."""
    report = on_progress or (lambda what, share: None)
    if staged.checked is not None:
        measured = measured_recipe(staged.checked, staged.source, texts, report)
        result = compress(
            staged.source,
            output,
            measured.checked,
            overwrite=overwrite,
            calibration=texts.calibration,
            layers=layers,
            on_progress=on_progress,
            finish=noted(finish, measured.notes),
        )
        return replace(result, notes=(*measured.notes, *result.notes))
    check_output_folder(output, overwrite)
    with open_stages(stages_path(output), _fingerprint(staged, texts)) as stages:
        run = _Run(staged, texts, stages, report)
        return run.last(run.before_last(), output, overwrite, finish)


def check_work_folders(output: Path) -> None:
    """Checks the folders of unfinished work, before long work. Raises OutputError for one that
    another user could have made."""
    for path in (workspace_path(output), stages_path(output)):
        check_locked_folder(path)


class _Run:
    def __init__(
        self, staged: StagedRecipe, texts: RecipeTexts, stages: Stages, report: OnProgress
    ) -> None:
        self._staged = staged
        self._texts = texts
        self._stages = stages
        self._report = report

    def before_last(self) -> Checkpoint:
        """Runs everything but the passes of the last stage, and returns what they start from."""
        source = self._staged.source
        for number, stage in enumerate(self._staged.stages):
            source = self._cut(number, stage, source)
            if stage is self._staged.stages[-1]:
                break
            source = self._pruned(number, stage, source)
            source = self._recovered(number, stage, source)
        return source

    def last(
        self, source: Checkpoint, output: Path, overwrite: bool, finish: FinishCompress | None
    ) -> CompressResult:
        """Writes what the passes of the last stage make of `source`."""
        staged, stages, texts = self._staged, self._stages, self._texts
        report = self.reporter(len(staged.stages) - 1)
        last = staged.stages[-1]
        checked = check_recipe(source, last.passes)
        if last.train is not None:
            job = CodeTraining(
                source=source,
                original=staged.source,
                checked=checked,
                step=last.train,
                name=staged.recipe.name,
                overwrite=overwrite,
            )
            return job.run(output, stages, texts, report, finish)
        measured = measured_recipe(checked, staged.source, texts, report)
        notes = *stages.notes, *measured.notes
        result = compress(
            source,
            output,
            measured.checked,
            overwrite=overwrite,
            calibration=texts.calibration if last.passes.needs_calibration else None,
            on_progress=report,
            finish=noted(finish, notes),
        )
        return replace(
            result,
            name=staged.recipe.name,
            calibration=None if texts.calibration is None else texts.calibration.source,
            notes=(*notes, *result.notes),
        )

    def reporter(self, number: int) -> OnProgress:
        """Returns the progress of one stage; all take the same share."""
        num_stages = len(self._staged.stages)
        prefix = f"stage {number + 1} of {num_stages}: " if num_stages > 1 else ""
        return lambda what, share: self._report(f"{prefix}{what}", (number + share) / num_stages)

    def _cut(self, number: int, stage: Stage, source: Checkpoint) -> Checkpoint:
        if not stage.cuts:
            return source

        def make(place: Path) -> tuple[str, ...]:
            return cut(
                source,
                place,
                tuple(step.cut for step in stage.cuts),
                calibration=self._texts.calibration,
                on_progress=self.reporter(number),
            ).notes

        return self._stages.make(f"{number}-cut", make)

    def _pruned(self, number: int, stage: Stage, source: Checkpoint) -> Checkpoint:
        if not stage.passes.steps:
            return source

        def make(place: Path) -> tuple[str, ...]:
            checked = check_recipe(source, stage.passes)
            measured = measured_recipe(
                checked, self._staged.source, self._texts, self.reporter(number)
            )
            result = compress(
                source,
                place,
                measured.checked,
                calibration=self._texts.calibration,
                on_progress=self.reporter(number),
            )
            return (*measured.notes, *result.notes)

        return self._stages.make(f"{number}-prune", make)

    def _recovered(self, number: int, stage: Stage, source: Checkpoint) -> Checkpoint:
        step = stage.recover
        if step is None:
            return source
        training = self._texts.training
        if training is None:
            raise ConfigError(
                "the recipe recovers, and there is no text to train on",
                seen=self._staged.recipe.name,
                remedy="Give texts for training (RecipeTexts), or leave the recovery out.",
            )

        def make(place: Path) -> tuple[str, ...]:
            text = training(step)
            done = recover(
                source,
                self._staged.source,
                place,
                RecoverConfig(train=train_config(step, self._texts.num_threads)),
                text.rows,
                on_progress=self.reporter(number),
            )
            measure = "KL" if source.spec.generates else "loss"
            return (recovery_note(done, text.source, measure),)

        return self._stages.make(f"{number}-recover", make)


def _fingerprint(staged: StagedRecipe, texts: RecipeTexts) -> str:
    """Returns a hash of every input that determines the bytes of the stages."""
    parts = [
        source_digest(staged.source),
        json.dumps(staged.source.config, sort_keys=True),
        repr(replace(staged.recipe, name="")),
        "" if texts.calibration is None else texts.calibration.digest,
        torch.__version__,
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def recovery_note(done: RecoverResult, text: str, measure: str = "KL") -> str:
    """Says on what and how long a recovery trained, and how far its loss fell; `measure` names the
    loss."""
    training = done.training
    first = training.records[0].loss
    return (
        f"recovered on {training.num_tokens:,} tokens of {text} in "
        f"{training.records[-1].elapsed_s:.0f} s: "
        f"{measure} on the training text from {first:.4f} to {training.final_loss:.4f}"
    )
