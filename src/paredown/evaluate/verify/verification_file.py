"""verification.json beside the weights: written after a compression, read when a server loads.

A folder holds a file of that name; NAME.gguf has NAME.gguf.verification.json.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from paredown.errors import CheckpointError
from paredown.evaluate.verify.fingerprint import REMEDY, Fingerprint
from paredown.models.files.json_file import MAX_TABLE_BYTES, read_json_object
from paredown.models.files.whole_file import is_there, whole_file
from paredown.models.gguf.checkpoint import is_gguf

NAME = "verification.json"
FORMAT = 1


def verification_path(checkpoint: Path) -> Path:
    """Returns the path of a checkpoint's verification, whether or not it exists."""
    if is_gguf(checkpoint):
        return checkpoint.with_name(f"{checkpoint.name}.{NAME}")
    return checkpoint / NAME


def write_verification(
    checkpoint: Path, figures: Mapping[str, object], fingerprint: Fingerprint
) -> None:
    """Writes the file. `figures` are for people and must be JSON. Raises OutputError."""
    fields = {"format": FORMAT, **figures, "fingerprint": fingerprint.as_json()}
    fields["sha256"] = _digest(fields)
    # One line per field, because an indented table of logits would hide the figures.
    lines = (f"{json.dumps(name)}: {json.dumps(fields[name], allow_nan=False)}" for name in fields)
    with whole_file(verification_path(checkpoint)) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_verification(checkpoint: Path) -> tuple[dict[str, object], Fingerprint] | None:
    """Returns the figures for people and the fingerprint that the checkpoint must match, or None if
    it has no verification. Raises CheckpointError for a damaged one, or one of another version."""
    path = verification_path(checkpoint)
    if not is_there(path):
        return None
    fields = read_json_object(path, MAX_TABLE_BYTES)
    if fields.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is of another version",
            seen=f"format {fields.get('format')}, not {FORMAT}",
            remedy="Use the version of paredown that wrote it, or --no-verify.",
        )
    if fields.pop("sha256", None) != _digest(fields):
        raise CheckpointError(
            f"{path} is damaged", seen="its sha256 is not that of its fields", remedy=REMEDY
        )
    del fields["format"]
    try:
        return fields, Fingerprint.from_json(_object(fields.pop("fingerprint")))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged", seen=error, remedy=REMEDY) from error


def _digest(fields: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError("the fingerprint is not an object")
    return value
