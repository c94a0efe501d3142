"""The share of the weights that may go before the divergence from the original reaches a limit:
`max_kl` of a prune step, and `min_cosine` for encoders.

The share is bisected. Each time the model is pruned anew and reads the validation text, which no
method calibrates on and the proof does not measure. One share counts for all layers.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.prune.pattern import Share
from paredown.compress.recipe import Recipe
from paredown.compress.steps import PruneStep, Step
from paredown.jobs.divergence_measure import DivergenceMeasure, divergence_measure
from paredown.jobs.recipe_texts import RecipeTexts
from paredown.models.checkpoint import Checkpoint
from paredown.progress import OnProgress

# Shares that are tried at most; the last of them differ by less than half a percent.
MAX_TRIALS = 9
# A share whose divergence is this near below the limit is taken.
NEAR = 0.95
# Shares are whole thousandths of a percent, as config.json records them.
_SHARE_DIGITS = 5


@dataclass(frozen=True, kw_only=True)
class FoundShare:
    """The largest share that was tried and stays within the limit, and its divergence; both are
    None where none does."""

    share: float | None
    divergence: float | None


def find_share(
    measure: Callable[[float], float], most_divergence: float, most_share: float
) -> FoundShare:
    """Returns the largest share up to `most_share` for which `measure` gives at most
    `most_divergence`, to within the tolerances above; it rises with the share."""
    found = FoundShare(share=None, divergence=None)
    low, high = 0.0, most_share
    share = most_share
    for _ in range(MAX_TRIALS):
        divergence = measure(share)
        if divergence <= most_divergence:
            found = FoundShare(share=share, divergence=divergence)
            if share == most_share or divergence >= NEAR * most_divergence:
                break
            low = share
        else:
            high = share
        share = round((low + high) / 2, _SHARE_DIGITS)
    return found


def with_measured_divergence(
    source: Checkpoint,
    original: Checkpoint,
    recipe: Recipe,
    texts: RecipeTexts,
    on_progress: OnProgress,
) -> tuple[Recipe, tuple[str, ...]]:
    """Returns the recipe for `source` with the shares that its steps with `max_kl` or `min_cosine`
    may remove, and a note on each. A step that may remove nothing is left out. The divergence is
    that to `original`, with everything that was removed before. Raises CheckpointError for
    predictions and vectors that are not numbers."""
    steps: list[Step] = []
    notes: list[str] = []
    if all(_limit(step) is None for step in recipe.prune_steps):
        return recipe, ()
    measure = divergence_measure(original, texts.num_threads)
    trials = _Trials(source, texts.calibration, measure, on_progress)
    for step in recipe.steps:
        limit = _limit(step) if isinstance(step, PruneStep) else None
        if not isinstance(step, PruneStep) or limit is None:
            steps.append(step)
            continue
        before = tuple(one for one in steps if isinstance(one, PruneStep))
        found = find_share(trials.of(before, step), limit, step.pattern.share)
        notes.append(_note(step, found, measure))
        if found.share is not None:
            steps.append(_at(step, found.share))
    return replace(recipe, steps=tuple(steps)), tuple(notes)


class _Trials:
    def __init__(
        self,
        source: Checkpoint,
        calibration: Calibration | None,
        measure: DivergenceMeasure,
        on_progress: OnProgress,
    ) -> None:
        self._source = source
        self._calibration = calibration
        self._measure = measure
        self._on_progress = on_progress

    def of(self, before: tuple[PruneStep, ...], step: PruneStep) -> Callable[[float], float]:
        """Returns the function that measures a share of `step`, after the steps before it."""
        num_done = 0

        def measure(share: float) -> float:
            nonlocal num_done
            recipe = Recipe(name=f"{share:.1%} pruned", steps=(*before, _at(step, share)))
            divergence = self._divergence(recipe, num_done)
            num_done += 1
            return divergence

        return measure

    def _divergence(self, recipe: Recipe, num_done: int) -> float:
        """Returns the divergence after pruning by the recipe."""

        def report(what: str, share: float) -> None:
            self._on_progress(f"{recipe.name}: {what}", (num_done + share) / MAX_TRIALS)

        with tempfile.TemporaryDirectory(prefix="paredown-") as folder:
            made = compress(
                self._source,
                Path(folder) / "pruned",
                recipe,
                calibration=self._calibration,
                on_progress=report,
            )
            return self._measure.of(Checkpoint.open(made.path), recipe.name)


def _at(step: PruneStep, share: float) -> PruneStep:
    return replace(step, pattern=Share(share=share), max_kl=None, min_cosine=None)


def _limit(step: PruneStep) -> float | None:
    """Returns the largest divergence that is allowed, None where none is measured."""
    return step.max_kl if step.min_cosine is None else 1.0 - step.min_cosine


def _note(step: PruneStep, found: FoundShare, measure: DivergenceMeasure) -> str:
    exceeds, allowed = f"exceeds a KL of {step.max_kl}", f"at most {step.max_kl}"
    if step.min_cosine is not None:
        exceeds = f"falls below a cosine of {step.min_cosine}"
        allowed = f"at least {step.min_cosine}"
    if found.share is None or found.divergence is None:
        return f"nothing pruned: every share that was tried {exceeds} on {measure.text}"
    return (
        f"pruned {found.share:.2%} of the weights, at most {step.pattern.share:.0%}: "
        f"{measure.told(found.divergence)} to the original, {allowed}, measured on {measure.text}"
    )
