"""Candidates: the source in every format, built, loaded and measured side by side."""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress_result import MadeLayers
from paredown.compress.recipe import Recipe
from paredown.compress.steps import RecoverStep
from paredown.errors import CapacityError, UnsupportedError
from paredown.evaluate.quality.measurement import Measurement, linear_format, make_measurement
from paredown.evaluate.quality.quality import Quality, measure_quality, num_pages_for
from paredown.evaluate.speed.speed import Trial, first_token_s, run_rounds, speed_pages
from paredown.evaluate.texts.text import EvalText
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.jobs.recipe_texts import RecipeTexts
from paredown.jobs.run_recipe import run_recipe
from paredown.jobs.staged_recipe import check_stages
from paredown.kernels.probe import available_memory_bytes
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.bounds import Bounds
from paredown.progress import OnProgress
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.machine import Machine
from paredown.spec.model import ModelSpec
from paredown.spec.weight import bits_per_weight

# Candidates that are loaded at the same time may take this share of the free memory together, but
# no more than the reference, or than `_SMALL_BYTES` where that is more.
_MEMORY_SHARE = 0.25
_SMALL_BYTES = 1 << 30
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A format that this model cannot have, and the reason."""

    name: str
    reason: str


@dataclass
class Candidates:
    """The results of a search. `clamped` counts values beyond a format's range, by candidate and
    tensor. `notes` (what methods did differently than asked) and `recipes` are kept by candidate
    too."""

    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    clamped: dict[str, dict[str, int]] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    recipes: dict[str, Recipe] = field(default_factory=dict)
    reference: Measurement | None = None


class BuildSetup(Protocol):
    """The part of a search's setup that building candidates reads."""

    @property
    def source(self) -> Checkpoint: ...
    @property
    def folder(self) -> Path: ...
    @property
    def texts(self) -> RecipeTexts: ...


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    """The inputs for building and measuring candidates.

    `source` is rounded; `original` is the user's checkpoint, whose executor is the reference. They
    are the same unless the original is quantized, as `notes` say for the proof. `folder` keeps
    candidates that took a calibration, so that none is made twice. `texts` are those that the
    recipes need. `one_text` cuts as many windows from the first calibration text alone; None
    if there is no other. With `prune` the search has candidates that remove weights, and smaller
    models are trained too with `recover`. `train_minutes` trains the codes of those with few bits.
    """

    source: Checkpoint
    original: Checkpoint
    notes: tuple[str, ...]
    executor: LoadedExecutor
    text: EvalText
    machine: Machine
    folder: Path
    texts: RecipeTexts
    num_rounds: int
    num_threads: int | None
    one_text: Callable[[], Calibration] | None = None
    bounds: Bounds = field(default_factory=Bounds)
    prune: bool = False
    recover: RecoverStep | None = None
    train_minutes: float | None = None

    @property
    def calibration(self) -> Calibration | None:
        return self.texts.calibration

    @property
    def protocol(self) -> str:
        return self.text.protocol

    def load(self, checkpoint: Checkpoint) -> LoadedExecutor:
        """Loads a candidate with the pages that the search needs."""
        pages = search_pages(checkpoint.spec, self.text, self.bounds)
        threads = ThreadPlan.resolve(self.num_threads)
        return load_executor(checkpoint, RunOptions(num_pages=pages, threads=threads))


def measure_candidates(
    setup: SearchSetup, recipes: Sequence[Recipe], result: Candidates, on_progress: OnProgress
) -> None:
    """Measures recipes batch by batch and adds the results to `result`. A batch has recipes whose
    models fit in memory together; these run alternately. Without any candidate the reference is
    not measured either."""
    for batch, report in reported_batches(setup.source, recipes, on_progress):
        _measure_batch(setup, batch, result, report)


def measure_losses(
    setup: SearchSetup, recipes: Sequence[Recipe], text: EvalText, on_progress: OnProgress
) -> list[float | None]:
    """Returns the KL divergence of each recipe on `text`, in nats per token, without timing; None
    for a recipe that the model cannot have."""
    losses: dict[str, float] = {}
    done = 0
    for batch in batches(setup.source, recipes):
        executors: dict[str, LoadedExecutor] = {}
        for recipe in batch:
            on_progress(f"finding what parts lose: {recipe.name}", done / len(recipes))
            done += 1
            with built(setup, recipe, batch, Candidates(), setup.load) as candidate:
                if candidate is not None:
                    executors[recipe.name] = candidate[1]
        qualities, _ = measure_quality([*executors.values()], text, setup.executor)
        for name, quality in zip(executors, qualities, strict=True):
            assert quality.kl_divergence is not None
            if math.isfinite(quality.kl_divergence):
                losses[name] = quality.kl_divergence
    return [losses.get(recipe.name) for recipe in recipes]


def reported_batches(
    source: Checkpoint, recipes: Sequence[Recipe], on_progress: OnProgress
) -> Iterator[tuple[list[Recipe], OnProgress]]:
    """Yields each of `batches`, and what reports the progress of its part."""
    groups = batches(source, recipes)
    for number, batch in enumerate(groups):

        def report(what: str, share: float, number: int = number) -> None:
            on_progress(what, (number + share) / len(groups))

        yield batch, report


def batches(source: Checkpoint, recipes: Sequence[Recipe]) -> list[list[Recipe]]:
    """Returns the recipes in groups whose models fit in memory together."""
    reference = 2.0 * source.spec.num_parameters()
    budget = min(_MEMORY_SHARE * available_memory_bytes(), max(reference, _SMALL_BYTES))
    groups: list[list[Recipe]] = []
    used = 0.0
    for recipe in recipes:
        size = _estimated_bytes(source, recipe)
        if not groups or used + size > budget:
            groups.append([])
            used = 0.0
        groups[-1].append(recipe)
        used += size
    return groups


def _estimated_bytes(source: Checkpoint, recipe: Recipe) -> float:
    """Estimates the bytes of the loaded weights. An embedding that is tied to the output layer
    counts twice."""
    spec = source.spec
    linear = spec.num_linear_parameters()
    bits = bits_per_weight(recipe.linear, spec.hidden_size)
    return linear * bits / 8 + 4 * (spec.num_parameters() - linear) * 2


def _measure_batch(
    setup: SearchSetup, recipes: Sequence[Recipe], result: Candidates, on_progress: OnProgress
) -> None:
    """Measures one batch. Compressing, predicting and timing take about 35, 50 and 15 percent of
    the time."""
    found: dict[str, tuple[Checkpoint, LoadedExecutor]] = {}
    # Recipes for the output layer come first: the others may reuse their layers.
    for done, recipe in enumerate(sorted(recipes, key=lambda recipe: recipe.output is None)):

        def report(what: str, share: float, done: int = done, name: str = recipe.name) -> None:
            on_progress(f"compressing {name}: {what}", 0.35 * (done + share) / len(recipes))

        report("starting", 0.0)
        with built(setup, recipe, recipes, result, setup.load, report) as candidate:
            if candidate is not None:
                found[recipe.name] = candidate
    if not found:
        return
    made = [(recipe, *found[recipe.name]) for recipe in recipes if recipe.name in found]
    qualities, own = measure_quality(
        [executor for _, _, executor in made],
        setup.text,
        setup.executor,
        lambda done, total: on_progress("predicting the text", 0.35 + 0.5 * done / total),
    )
    assert own is not None
    own.require_numbers(str(setup.original.path))
    trials = [
        Trial(executor=executor, weights=linear_format(checkpoint))
        for _, checkpoint, executor in made
    ]
    reference = Trial(executor=setup.executor, weights=linear_format(setup.original))
    run_rounds(
        [*trials, reference],
        setup.num_rounds,
        lambda done, total: on_progress("timing", 0.85 + 0.15 * done / total),
    )
    result.reference = _measured(setup, "original", setup.original, own, reference)
    for (recipe, checkpoint, _), quality, trial in zip(made, qualities, trials, strict=True):
        measured = _measured(setup, recipe.name, checkpoint, quality, trial)
        result.measurements.append(measured)
        result.recipes[recipe.name] = recipe


@contextmanager
def built(
    setup: BuildSetup,
    recipe: Recipe,
    recipes: Sequence[Recipe],
    result: Candidates,
    load: Callable[[Checkpoint], T],
    on_progress: OnProgress | None = None,
) -> Iterator[tuple[Checkpoint, T] | None]:
    """Yields the compressed source and what `load` makes of it, or None, with a line in `skipped`,
    if it cannot have the format or does not fit. Candidates that are quick to make are removed
    afterwards, but mapped files stay readable."""
    name = recipe.name
    with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
        place = setup.folder if recipe.needs_calibration else Path(folder)
        try:
            written = run_recipe(
                check_stages(setup.source, recipe),
                place / name,
                texts=setup.texts,
                layers=_made_layers(setup, recipe, recipes, result),
                on_progress=on_progress,
            )
            checkpoint = Checkpoint.open(written.path)
            executor = load(checkpoint)
        except (UnsupportedError, CapacityError) as error:
            result.skipped.append(Skipped(name=name, reason=f"{error.what} ({error.seen})"))
            yield None
            return
        if written.notes:
            result.notes[name] = written.notes
        if written.clamped:
            result.clamped[name] = written.clamped
        yield checkpoint, executor


def _made_layers(
    setup: BuildSetup, recipe: Recipe, recipes: Sequence[Recipe], result: Candidates
) -> MadeLayers | None:
    """Returns the recipe's layers if another finished recipe has the same ones."""
    for other in recipes:
        folder = setup.folder / other.name
        if recipe.needs_calibration and recipe.has_layers_of(other) and folder.is_dir():
            notes = result.notes.get(other.name, ())
            return MadeLayers(checkpoint=Checkpoint.open(folder), notes=notes)
    return None


def _measured(
    setup: SearchSetup, name: str, checkpoint: Checkpoint, quality: Quality, trial: Trial
) -> Measurement:
    measured = make_measurement(
        name,
        checkpoint,
        quality=quality,
        speed=trial.speed(setup.machine),
        original=setup.original,
    )
    bounds = setup.bounds
    if bounds.max_first_token_s is not None:
        seconds = first_token_s(trial.executor, bounds.prompt_tokens)
        measured = replace(measured, first_token_s=seconds)
    if bounds.max_memory_mb is not None:
        tokens = bounds.num_sequences * -(-bounds.prompt_tokens // PAGE_SIZE) * PAGE_SIZE
        weights = max(checkpoint.file_bytes, trial.executor.weight_bytes)
        memory = weights + tokens * trial.executor.kv_token_bytes
        measured = replace(measured, memory_bytes=memory)
    return measured


def search_pages(spec: ModelSpec, text: EvalText, bounds: Bounds) -> int:
    """Returns the pages that an executor needs in a search: for the text, the rounds and a bounded
    prompt."""
    prompt = 0 if bounds.max_first_token_s is None else -(-bounds.prompt_tokens // PAGE_SIZE)
    return max(num_pages_for(text), speed_pages(spec), prompt)
