"""OptimizeResult: everything that a search found, chose and wrote."""

from dataclasses import asdict, dataclass
from pathlib import Path

from paredown.evaluate.quality.measurement import Measurement
from paredown.evaluate.verify.verification import Verification
from paredown.optimize.bounds import Bounds, Gap
from paredown.optimize.candidates import Skipped
from paredown.optimize.text_choice import TextChoice
from paredown.shell_word import shell_path
from paredown.spec.machine import Machine


@dataclass(frozen=True, kw_only=True)
class OptimizeResult:
    """The result of a search.

    `chosen` is the candidate that was written to `output`. It is None if none meets the bounds;
    `nearest` then comes closest, and `missed` are the bounds that it misses. `verification`
    belongs to the written checkpoint; if that could not be measured, `not_verified` says why.

    `note` says what the search decided by itself, `text_choice` how much the calibration text
    mattered, `mixes` what the mixed candidates consist of, `pruned` what each pruned one is worth,
    and `not_tried` what the time did not allow. `stopped` is the signal that ended the search: then
    only a report is written, and `exit_code` is that of the signal.
    """

    model: str
    candidates: list[Measurement]
    reference: Measurement
    skipped: list[Skipped]
    not_tried: list[Skipped]
    mixes: dict[str, str]
    pruned: dict[str, str]
    stopped: str | None
    exit_code: int | None
    clamped: dict[str, dict[str, int]]
    notes: dict[str, tuple[str, ...]]
    machine: Machine
    protocol: str
    calibration: str | None
    text_choice: TextChoice | None
    note: str | None
    bounds: Bounds
    chosen: str | None
    nearest: str | None
    missed: tuple[Gap, ...]
    verification: Verification | None
    not_verified: str | None
    output: Path | None
    report: Path | None

    @property
    def serve_line(self) -> str | None:
        """The command that serves the chosen checkpoint."""
        return None if self.output is None else f"paredown serve {shell_path(self.output)}"

    def as_json(self) -> dict[str, object]:
        return {
            "model": self.model,
            "chosen": self.chosen,
            "bounds": asdict(self.bounds),
            "nearest": self.nearest,
            "missed": [asdict(gap) for gap in self.missed],
            "candidates": [one.as_json() for one in self.candidates],
            "reference": self.reference.as_json(),
            "skipped": [asdict(one) for one in self.skipped],
            "not_tried": [asdict(one) for one in self.not_tried],
            "mixes": self.mixes,
            "pruned": self.pruned,
            "stopped": self.stopped,
            "clamped": self.clamped,
            "notes": {name: list(notes) for name, notes in self.notes.items()},
            "verification": None if self.verification is None else self.verification.figures(),
            "not_verified": self.not_verified,
            "protocol": self.protocol,
            "calibration": self.calibration,
            "text_choice": None if self.text_choice is None else asdict(self.text_choice),
            "text_choice_words": None if self.text_choice is None else self.text_choice.words,
            "note": self.note,
            "machine": asdict(self.machine),
            "output": None if self.output is None else str(self.output),
            "report": None if self.report is None else str(self.report),
            "serve": self.serve_line,
        }


def nothing_chosen(result: OptimizeResult) -> str:
    """Says why nothing was written, and what would help."""
    missed = "; ".join(
        f"{gap.bound} {gap.limit:g} (it has {gap.seen:.4g})" for gap in result.missed
    )
    return (
        f"No candidate meets the bounds, so none was written. Nearest is {result.nearest}; in its "
        f"way: {missed}. Allow more there."
    )
