"""The last stage of a recipe that trains codes: quantizes into a folder beside the output, then
trains from there into the output."""

from dataclasses import dataclass
from pathlib import Path

from paredown.compress.checked_recipe import CheckedRecipe
from paredown.compress.compress import compress
from paredown.compress.compress_result import CompressResult
from paredown.compress.folder_job import FinishCompress
from paredown.compress.prune.sparsity import count_zeros
from paredown.compress.schemes import scheme_rows
from paredown.compress.size import checkpoint_bits_per_weight
from paredown.compress.steps import TrainStep
from paredown.distill.quantized.train_config import quantized_train_config
from paredown.distill.quantized.train_quantized import (
    QuantizedTrainResult,
    TrainedFrom,
    train_quantized,
)
from paredown.errors import ConfigError
from paredown.jobs.measured_recipe import measured_recipe
from paredown.jobs.recipe_texts import RecipeTexts
from paredown.jobs.stages import Stages
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

# The name of the folder of the codes before training.
STAGE = "last-quantize"
# The share of quantizing in the stage.
_QUANTIZE_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class CodeTraining:
    """`checked` is what quantizes `source`, for which the output is compared with `original`."""

    source: Checkpoint
    original: Checkpoint
    checked: CheckedRecipe
    step: TrainStep
    name: str
    overwrite: bool

    def run(
        self,
        output: Path,
        stages: Stages,
        texts: RecipeTexts,
        report: OnProgress,
        finish: FinishCompress | None,
    ) -> CompressResult:
        """Raises what `compress` and `train_quantized` raise, and ConfigError without a text to
        train on."""
        if texts.training is None:
            raise ConfigError(
                "the recipe trains codes, and there is no text to train on",
                seen=self.name,
                remedy="Give texts for training (RecipeTexts), or leave the training out.",
            )
        start = stages.make(STAGE, lambda place: self._quantize(place, texts, report))
        text = texts.training(self.step)
        config = quantized_train_config(self.step, texts.num_threads)

        def with_notes(folder: Path, done: QuantizedTrainResult) -> None:
            if finish is not None:
                finish(folder, (*stages.notes, training_note(done, text.source)))

        done = train_quantized(
            TrainedFrom(start=start, original=self.original, floats=self._floats()),
            output,
            config,
            text.rows,
            overwrite=self.overwrite,
            on_progress=_rest(report),
            finish=with_notes,
        )
        notes = (*stages.notes, training_note(done, text.source))
        calibration = None if texts.calibration is None else texts.calibration.source
        return self._result(done, notes, calibration)

    def _quantize(self, place: Path, texts: RecipeTexts, report: OnProgress) -> tuple[str, ...]:
        measured = measured_recipe(self.checked, self.original, texts, report)
        done = compress(
            self.source,
            place,
            measured.checked,
            calibration=texts.calibration if self.checked.recipe.needs_calibration else None,
            on_progress=lambda what, share: report(what, _QUANTIZE_SHARE * share),
        )
        clamped = (
            f"{count} values of {name} were beyond the range of its dtype"
            for name, count in done.clamped.items()
        )
        return (*measured.notes, *done.notes, *clamped)

    def _floats(self) -> Checkpoint | None:
        """Returns the weights that were rounded; a transform has changed what they mean."""
        return None if self.checked.recipe.transforms else self.source

    def _result(
        self, done: QuantizedTrainResult, notes: tuple[str, ...], calibration: str | None
    ) -> CompressResult:
        written, schemes = Checkpoint.open(done.path), self.checked.schemes
        kept = (
            name
            for name in self.source.tensors
            if name in written.tensors and name.rpartition(".")[0] not in schemes
        )
        output = self.source.names.output
        return CompressResult(
            name=self.name,
            path=done.path,
            bits_per_weight=checkpoint_bits_per_weight(written, self.source.spec),
            file_bytes=written.file_bytes,
            num_quantized=len(schemes),
            kept=tuple(kept),
            untied=output in schemes and self.source.spec.is_tied,
            clamped=dict(done.clamped),
            schemes=tuple(scheme_rows(schemes, self.source)),
            sparsity=count_zeros(written, written.pruned),
            notes=notes,
            calibration=calibration,
        )


def training_note(done: QuantizedTrainResult, text: str) -> str:
    """Says on what and how long codes were trained, how far the loss fell, and how many moved."""
    training = done.training
    return (
        f"codes trained on {training.num_tokens:,} tokens of {text} in "
        f"{training.records[-1].elapsed_s:.0f} s: loss on the training text from "
        f"{training.records[0].loss:.4f} to {training.final_loss:.4f}, "
        f"{100 * done.moved_share:.1f} % of the codes changed"
    )


def _rest(report: OnProgress) -> OnProgress:
    return lambda what, share: report(what, _QUANTIZE_SHARE + (1 - _QUANTIZE_SHARE) * share)
