"""Converts a checkpoint to another format and carries the proof of its source over."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paredown.compress.convert.convert import (
    ConvertResult,
    Fitting,
    check_fitted,
    convert,
    keeps_codes,
    takes_importance,
)
from paredown.compress.importance import Importance
from paredown.errors import CapacityError, OutputError, UnsupportedError
from paredown.evaluate.verify.carried_verification import (
    CarriedVerification,
    VerifiedSource,
    carry_verification,
    check_verified,
)
from paredown.evaluate.verify.verification import Verification
from paredown.evaluate.verify.verification_file import verification_path
from paredown.jobs.converted_encoder import ConvertedEncoder
from paredown.jobs.importance import ImportanceConfig, find_importance
from paredown.jobs.open_source import open_source
from paredown.jobs.verify_config import NOT_WANTED
from paredown.kernels.probe import resolve_num_threads
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.whole_file import is_there
from paredown.models.gguf.checkpoint import is_gguf
from paredown.progress import OnProgress

_IMPORTANCE = ImportanceConfig()


@dataclass(frozen=True, kw_only=True)
class ConvertedCheckpoint:
    """A folder or GGUF file that `convert_checkpoint` wrote.

    `source_bytes`  size of the files that were converted
    `written`       its place and size, and what the target could not express
    `verification`  compares its logits with the source's, or an encoder's vectors as after a
                    compression; None where there is no proof
    `not_verified`  why not: "--no-verify" where that was asked for; None where one was
    `importance`    the importance that GGUF's K-quants were fitted by; None where nothing was
                    fitted
    """

    source_bytes: int
    written: ConvertResult
    verification: CarriedVerification | Verification | None
    not_verified: str | None
    importance: Importance | None = None

    def as_json(self) -> dict[str, object]:
        """Returns everything as `paredown convert --json` prints it."""
        return {
            "target": self.written.target,
            "path": str(self.written.path),
            "bits_per_weight": self.written.bits_per_weight,
            "file_bytes": self.written.file_bytes,
            "notes": list(self.written.notes),
            "importance": None if self.importance is None else self.importance.text,
            "clamped": dict(self.written.clamped),
            "verification": self._verification_json(),
            "not_verified": self.not_verified,
        }

    def _verification_json(self) -> dict[str, object] | None:
        if isinstance(self.verification, Verification):
            return self.verification.figures()
        return None if self.verification is None else self.verification.as_json()


def convert_and_carry(
    model: Checkpoint | Path | str | None,
    output: Path | str,
    target: str,
    *,
    verify: bool = True,
    num_threads: int | None = None,
    on_progress: OnProgress | None = None,
    importance: ImportanceConfig = _IMPORTANCE,
) -> ConvertedCheckpoint:
    """Writes a checkpoint in another format and carries its proof over.

    This needs a target that keeps every code of a source with a verification.json. The source is
    then checked before any work, as a server checks it. The output gets golden logits of its own,
    in verification.json inside its folder when that appears, or in a file beside a GGUF file.
    An encoder is measured beside its source, whatever the target. Otherwise no proof is written and
    `not_verified` says why. A failure leaves nothing behind.

    `model`        folder or .gguf file; None is the model that comes with the package
    `output`       folder or .gguf file to write; must not exist
    `target`       "compressed-tensors", "gptq", "awq", "gguf", "bf16", ... (docs/guide/convert.md)
    `verify`       False checks nothing and writes no verification.json
    `num_threads`  threads of the check; None is all cores
    `on_progress`  called with the current activity and the share of it that is done
    `importance`   the importance that GGUF's K-quants are fitted by; other targets take none

    Raises ConfigError for an unknown target, and UnsupportedError for weights that it cannot
    express. Raises CheckpointError for a source that is damaged or differs from its proof, and for
    logits that are not numbers. Raises OutputError if `output` exists or cannot be written.
    """
    output = Path(output)
    threads = resolve_num_threads(num_threads)
    report = on_progress or (lambda what, share: None)
    source = open_source(model)
    _check_place(output)
    proof: _Carrier | ConvertedEncoder | None = None
    if verify:
        proof = _proof(source, target, num_threads)
    found = None
    if takes_importance(target):
        check_fitted(source, output, target)
        first, report = (_part(report, 0.0, 0.5), _part(report, 0.5, 1.0))
        found = find_importance(source, output, importance, num_threads, first)
    fitting = Fitting(importance=found, num_threads=threads)
    written = convert(source, output, target, report, proof, fitting)
    return ConvertedCheckpoint(
        importance=found,
        source_bytes=source.file_bytes,
        written=written,
        verification=None if proof is None else proof.verification,
        not_verified=NOT_WANTED if proof is None else proof.skipped,
    )


def _proof(
    source: Checkpoint, target: str, num_threads: int | None
) -> "_Carrier | ConvertedEncoder":
    if not source.spec.generates:
        return ConvertedEncoder(source, target, num_threads=num_threads)
    return _Carrier(source, keeps_codes=keeps_codes(source, target), num_threads=num_threads)


def _part(on_progress: OnProgress, start: float, end: float) -> OnProgress:
    return lambda what, share: on_progress(what, start + (end - start) * share)


class _Carrier:
    """Checks the source against its proof before any work, and gives each output that it is called
    with a proof of its own. `verification` is the result; `skipped` says why there is none. Raises
    CheckpointError for a source that differs from its proof."""

    def __init__(self, source: Checkpoint, *, keeps_codes: bool, num_threads: int | None) -> None:
        self.verification: CarriedVerification | None = None
        self.skipped: str | None = None
        self._verified: VerifiedSource | None = None
        self._num_threads = num_threads
        if not is_there(verification_path(source.path)):
            self.skipped = f"{source.path} has no {verification_path(source.path).name}"
        elif not keeps_codes:
            self.skipped = "the target holds other numbers than those that were verified"
        else:
            with self._skipping():
                self._verified = check_verified(source, num_threads)

    def __call__(self, path: Path) -> None:
        if self._verified is not None:
            with self._skipping():
                written = Checkpoint.open(path)
                self.verification = carry_verification(self._verified, written, self._num_threads)

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        try:
            yield
        except (CapacityError, UnsupportedError) as error:
            self.skipped = f"{error.what} ({error.seen})"


def _check_place(output: Path) -> None:
    """Raises OutputError if the proof of a deleted GGUF file is still there: it would be taken for
    the new file's proof."""
    path = verification_path(output)
    if is_gguf(output) and path.exists():
        raise OutputError(
            f"{path} exists already, the proof of another file",
            seen="a file",
            remedy="Remove it, or choose another name.",
        )
