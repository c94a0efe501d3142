"""Carries a checkpoint's proof over into another format.

The source is checked as a server would check it. The new checkpoint gets its own golden logits, so
that it is checked by its own computation, and the two are compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from paredown.evaluate.verify.fingerprint import golden_logits, make_fingerprint
from paredown.evaluate.verify.golden import (
    GoldenLogits,
    hash_output,
    log_probabilities,
    make_golden,
)
from paredown.evaluate.verify.verification_file import read_verification, write_verification
from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.hub.hub_source import HubSource, model_name
from paredown.spec.weight import ActivationDType


@dataclass(frozen=True, kw_only=True)
class VerifiedSource:
    """A checkpoint that matches its verification. `golden` are its logits on this machine,
    `figures` the readable part of verification.json, `hub` its origin on the hub, and `activations`
    what inputs were rounded to, if that was chosen."""

    name: str
    hub: HubSource | None
    figures: Mapping[str, object]
    golden: GoldenLogits
    activations: ActivationDType | None = None


@dataclass(frozen=True, kw_only=True)
class CarriedVerification:
    """`same_logits` says whether the golden logits equal the source's bit for bit. `difference`
    compares the log-probabilities, relative to their size (evaluate/verify/golden.py). `hub` is the
    source's origin."""

    source: str
    same_logits: bool
    difference: float
    hub: HubSource | None = None

    @property
    def words(self) -> str:
        if self.same_logits:
            return f"the logits of {self.source}, bit for bit"
        return (
            f"its own logits, which differ from those of {self.source} by {self.difference:.1g} of "
            "their size: inputs are rounded otherwise, or the last bits of scales"
        )

    def as_json(self) -> dict[str, object]:
        return {
            "source": self.source,
            "same_logits": self.same_logits,
            "difference": self.difference if np.isfinite(self.difference) else None,
            **({} if self.hub is None else {"hub": self.hub.as_json()}),
        }


def check_verified(source: Checkpoint, num_threads: int | None = None) -> VerifiedSource | None:
    """Returns the verification of `source`, or None if it has none. Raises CheckpointError where it
    does not match, and CapacityError or UnsupportedError where it cannot be run here."""
    found = read_verification(source.path)
    if found is None:
        return None
    figures, fingerprint = found
    executor = _load(source, fingerprint.activations, num_threads)
    fingerprint.check_files(source, executor)
    fingerprint.check_logits(source, executor)
    golden = make_golden(golden_logits(executor), executor.arithmetic)
    return VerifiedSource(
        name=model_name(source.path),
        hub=HubSource.of(source.path),
        figures=figures,
        golden=golden,
        activations=fingerprint.activations,
    )


def carry_verification(
    verified: VerifiedSource, written: Checkpoint, num_threads: int | None = None
) -> CarriedVerification:
    """Writes the verification of a checkpoint with the codes of `verified`. Raises CheckpointError
    for NaN or infinite logits, CapacityError or UnsupportedError where it cannot be run here, and
    OutputError where it cannot be written."""
    executor = _load(written, verified.activations, num_threads)
    fingerprint = make_fingerprint(written, executor)
    logits_TV = golden_logits(executor)
    sampled_TK = np.array(verified.golden.sampled_TK)
    carried = CarriedVerification(
        source=verified.name,
        hub=verified.hub,
        same_logits=hash_output(logits_TV) == verified.golden.sha256,
        difference=verified.golden.difference(log_probabilities(logits_TV, sampled_TK)),
    )
    figures = {
        "converted": carried.as_json(),
        "held_bytes": executor.weight_bytes,
        "notes": list(written.notes),
        "source": dict(verified.figures),
    }
    write_verification(written.path, figures, fingerprint)
    return carried


def _load(
    checkpoint: Checkpoint, activations: ActivationDType | None, num_threads: int | None
) -> LoadedExecutor:
    threads = ThreadPlan.resolve(num_threads)
    options = RunOptions(num_pages=1, threads=threads, activations=activations)
    return load_executor(checkpoint, options)
