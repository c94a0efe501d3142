"""Candidates of an encoder, measured by their vectors and by texts per second."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.recipe import Recipe
from paredown.evaluate.quality.measurement import Measurement, linear_format, make_measurement
from paredown.evaluate.quality.vector_agreement import VectorAgreement
from paredown.evaluate.speed.encoder_speed import EncoderCell, EncoderTrial, run_encoder_rounds
from paredown.evaluate.speed.speed import arithmetic_peak
from paredown.evaluate.texts.encoder_texts import MAX_TEXT_TOKENS, EncoderTexts
from paredown.evaluate.verify.encoder_verification import measure_agreement
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.executors.load import load_encoder
from paredown.executors.run_options import RunOptions
from paredown.jobs.recipe_texts import RecipeTexts
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.bounds import Bounds
from paredown.optimize.candidates import Candidates, built, reported_batches
from paredown.progress import OnProgress
from paredown.spec.machine import Machine

# Texts that are encoded at once where speed is measured.
CELL_TEXTS = 32
# The original's vectors are its own.
_SAME = VectorAgreement(
    cosine_mean=1.0, cosine_least=1.0, rank_agreement=None, label_agreement=None
)


@dataclass(frozen=True, kw_only=True)
class EncoderSetup:
    """The inputs for building and measuring candidates of an encoder, as SearchSetup has them."""

    source: Checkpoint
    original: Checkpoint
    notes: tuple[str, ...]
    executor: EncoderExecutor
    text: EncoderTexts
    machine: Machine
    folder: Path
    texts: RecipeTexts
    num_rounds: int
    num_threads: int | None
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def calibration(self) -> Calibration | None:
        return self.texts.calibration

    @property
    def cell(self) -> EncoderCell:
        """The texts that speed is measured on."""
        settings = self.original.encoder_settings
        most = self.original.spec.max_positions if settings is None else settings.max_tokens
        return EncoderCell(num_texts=CELL_TEXTS, num_tokens=min(MAX_TEXT_TOKENS, most))

    @property
    def protocol(self) -> str:
        cell = self.cell
        return (
            f"{self.text.protocol}; speed on {cell.num_texts} texts of {cell.num_tokens} tokens "
            "at once"
        )


def load_candidate(checkpoint: Checkpoint, num_threads: int | None) -> EncoderExecutor:
    return load_encoder(checkpoint, RunOptions(threads=ThreadPlan.resolve(num_threads)))


def measure_encoder_candidates(
    setup: EncoderSetup, recipes: Sequence[Recipe], result: Candidates, on_progress: OnProgress
) -> None:
    """Measures recipes batch by batch and adds the results to `result`. A batch has recipes whose
    models fit in memory together; these run alternately."""
    for batch, report in reported_batches(setup.source, recipes, on_progress):
        _measure_batch(setup, batch, result, report)


def _measure_batch(
    setup: EncoderSetup, recipes: Sequence[Recipe], result: Candidates, on_progress: OnProgress
) -> None:
    found: list[tuple[Recipe, Checkpoint, EncoderExecutor]] = []
    for done, recipe in enumerate(recipes):

        def report(what: str, share: float, done: int = done, name: str = recipe.name) -> None:
            on_progress(f"compressing {name}: {what}", 0.5 * (done + share) / len(recipes))

        report("starting", 0.0)
        load = lambda checkpoint: load_candidate(checkpoint, setup.num_threads)  # noqa: E731
        with built(setup, recipe, recipes, result, load, report) as candidate:
            if candidate is not None:
                found.append((recipe, *candidate))
    if not found:
        return
    agreements = []
    for done, (recipe, _, executor) in enumerate(found):
        on_progress(f"reading texts: {recipe.name}", 0.5 + 0.2 * done / len(found))
        names = (f"the model made by {recipe.name}", str(setup.original.path))
        agreements.append(measure_agreement(executor, setup.executor, setup.text, names=names))
    trials = [EncoderTrial(executor, setup.cell) for _, _, executor in found]
    reference = EncoderTrial(setup.executor, setup.cell)
    run_encoder_rounds(
        [*trials, reference],
        setup.num_rounds,
        lambda done, total: on_progress("timing", 0.7 + 0.3 * done / total),
    )
    result.reference = _measured(setup, "original", setup.original, _SAME, reference)
    for (recipe, checkpoint, _), agreement, trial in zip(found, agreements, trials, strict=True):
        result.measurements.append(_measured(setup, recipe.name, checkpoint, agreement, trial))
        result.recipes[recipe.name] = recipe


def _measured(
    setup: EncoderSetup,
    name: str,
    checkpoint: Checkpoint,
    agreement: VectorAgreement,
    trial: EncoderTrial,
) -> Measurement:
    speed = trial.speed(arithmetic_peak(setup.machine, linear_format(checkpoint)))
    measured = make_measurement(
        name,
        checkpoint,
        agreement=agreement,
        original=setup.original,
        held_bytes=trial.executor.weight_bytes,
    )
    return replace(
        measured, texts_per_s=speed.texts_per_s, texts_spread=speed.spread, mfu=speed.mfu
    )
