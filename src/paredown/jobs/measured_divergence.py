"""The share of the weights that may go before the KL divergence to the original reaches a limit:
`max_kl` of a prune step.

The share is bisected. Each time the model is pruned anew and predicts the validation text, which no
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
from paredown.evaluate.quality.simulated import Variant, measure_variants
from paredown.evaluate.texts.text import EvalText
from paredown.evaluate.texts.validation_text import choose_validation_text
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.progress import OnProgress

# The text that decides. Its sampling error stays below the tolerance.
_NUM_TOKENS = 2048
_WINDOW_TOKENS = 512
# Shares that are tried at most; the last of them differ by less than half a percent.
MAX_TRIALS = 9
# A share whose divergence is this near below the limit is taken.
NEAR = 0.95
# Shares are whole thousandths of a percent, as config.json records them.
_SHARE_DIGITS = 5


@dataclass(frozen=True, kw_only=True)
class FoundShare:
    """The largest share that was tried and stays within the limit, and its KL divergence; both are
    None where none does."""

    share: float | None
    kl_divergence: float | None


def find_share(measure: Callable[[float], float], max_kl: float, most_share: float) -> FoundShare:
    """Returns the largest share up to `most_share` for which `measure` gives at most `max_kl`, to
    within the tolerances above; it rises with the share."""
    found = FoundShare(share=None, kl_divergence=None)
    low, high = 0.0, most_share
    share = most_share
    for _ in range(MAX_TRIALS):
        divergence = measure(share)
        if divergence <= max_kl:
            found = FoundShare(share=share, kl_divergence=divergence)
            if share == most_share or divergence >= NEAR * max_kl:
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
    calibration: Calibration | None,
    on_progress: OnProgress,
) -> tuple[Recipe, tuple[str, ...]]:
    """Returns the recipe for `source` with the shares that its steps with `max_kl` may remove, and
    a note on each. A step that may remove nothing is left out. The divergence is that to
    `original`, with everything that was removed before. Raises CheckpointError for predictions that
    are not numbers."""
    steps: list[Step] = []
    notes: list[str] = []
    if not any(step.max_kl is not None for step in recipe.prune_steps):
        return recipe, ()
    trials = _Trials(source, original, calibration, on_progress)
    for step in recipe.steps:
        if not isinstance(step, PruneStep) or step.max_kl is None:
            steps.append(step)
            continue
        before = tuple(one for one in steps if isinstance(one, PruneStep))
        found = find_share(trials.of(before, step), step.max_kl, step.pattern.share)
        notes.append(_note(step, found, trials.text))
        if found.share is not None:
            steps.append(_at(step, found.share))
    return replace(recipe, steps=tuple(steps)), tuple(notes)


class _Trials:
    def __init__(
        self,
        source: Checkpoint,
        original: Checkpoint,
        calibration: Calibration | None,
        on_progress: OnProgress,
    ) -> None:
        self._source = source
        self._calibration = calibration
        self._on_progress = on_progress
        self._reference = Decoder.from_checkpoint(original)
        self.text = choose_validation_text(original, None, _NUM_TOKENS, _WINDOW_TOKENS)

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
        """Returns the KL divergence after pruning by the recipe, in nats per token."""

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
            pruned = Decoder.from_checkpoint(Checkpoint.open(made.path))
            (quality,), _ = measure_variants(pruned, [Variant()], self.text, self._reference)
        quality.require_numbers(recipe.name)
        assert quality.kl_divergence is not None
        return quality.kl_divergence


def _at(step: PruneStep, share: float) -> PruneStep:
    return replace(step, pattern=Share(share=share), max_kl=None)


def _note(step: PruneStep, found: FoundShare, text: EvalText) -> str:
    where = f"on {text.num_tokens:,} tokens of {text.source}"
    if found.share is None or found.kl_divergence is None:
        return f"nothing pruned: every share that was tried exceeds a KL of {step.max_kl:g} {where}"
    return (
        f"pruned {found.share:.2%} of the weights, at most {step.pattern.share:.0%}: KL "
        f"{found.kl_divergence:.4f} to the original, at most {step.max_kl:g}, measured {where}"
    )
