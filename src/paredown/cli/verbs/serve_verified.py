"""Checks what is served against its verification.json."""

from collections.abc import Callable

from paredown.cli.printed import tell
from paredown.evaluate.verify.fingerprint import Fingerprint
from paredown.evaluate.verify.verification_file import verification_path
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.executors.protocol import LoadedExecutor
from paredown.models.checkpoint import Checkpoint


def tell_verified(
    checkpoint: Checkpoint,
    executor: LoadedExecutor | EncoderExecutor,
    fingerprint: Fingerprint | None,
    *,
    results: str,
    check: Callable[[Fingerprint], str],
) -> str | None:
    """Prints one line about the verification, and returns it; None where there is none, since that
    line names a folder. `check` compares the `results` ("logits", "vectors") where they were
    computed in the same way. Raises CheckpointError."""
    name = verification_path(checkpoint.path).name
    if fingerprint is None:
        tell(f"not verified: {checkpoint.path} has no {name}")
        return None
    fingerprint.check_files(checkpoint, executor)
    others = fingerprint.other_inputs(executor)
    line = f"verified: the files of {name}, not its {results}: {others}"
    if others is None:
        line = f"verified: the {results} of {name}, {check(fingerprint)}"
    tell(line)
    return line
