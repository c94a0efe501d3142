"""Shows how much the choice of calibration text matters: calibrates a candidate again, on the
first of its texts alone."""

from dataclasses import dataclass, replace

from paredown.compress.calibrate.calibration import Calibration
from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.candidates import Candidates, SearchSetup, measure_candidates
from paredown.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class TextChoice:
    """The losses of `candidate`, by the text that it was calibrated on."""

    candidate: str
    kl_by_text: dict[str, float]
    loss_by_text: dict[str, float]

    @property
    def words(self) -> str:
        told = [
            f"{self.kl_by_text[text]:.5f} nats and {self.loss_by_text[text]:+.2%} on {text}"
            for text in self.kl_by_text
        ]
        return f"{self.candidate} by its calibration text: {'; '.join(told)}"


def compare_texts(
    setup: SearchSetup,
    found: Candidates,
    name: str,
    alone: Calibration,
    on_progress: OnProgress,
) -> TextChoice | None:
    """Adds the candidate `name`, calibrated on `alone`, to `found`; returns None if it cannot be
    made."""
    assert setup.calibration is not None
    twin = replace(found.recipes[name], name=f"{name}-one-text")
    measure_candidates(_with_text(setup, alone), [twin], found, on_progress)
    by_name = {one.name: one for one in found.measurements}
    if twin.name not in by_name:
        return None
    made = {setup.calibration.source: by_name[name], alone.source: by_name[twin.name]}
    return TextChoice(
        candidate=name,
        kl_by_text={text: one.kl_divergence or 0.0 for text, one in made.items()},
        loss_by_text={text: _loss(one, found) for text, one in made.items()},
    )


def _with_text(setup: SearchSetup, alone: Calibration) -> SearchSetup:
    return replace(setup, texts=replace(setup.texts, calibration=alone))


def _loss(one: Measurement, found: Candidates) -> float:
    assert found.reference is not None
    assert one.perplexity is not None
    assert found.reference.perplexity is not None
    return one.perplexity / found.reference.perplexity - 1
