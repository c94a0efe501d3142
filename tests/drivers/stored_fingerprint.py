"""The fingerprint of a checkpoint's verification.json, without its figures."""

from pathlib import Path

from paredown.evaluate.verify.fingerprint import Fingerprint
from paredown.evaluate.verify.verification_file import read_verification


def read_fingerprint(checkpoint: Path) -> Fingerprint | None:
    """Returns None for a checkpoint without a verification."""
    found = read_verification(checkpoint)
    return None if found is None else found[1]
