"""verification.json beside the weights: written when a recipe ends, read when the server loads."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from paredown.errors import CheckpointError
from paredown.evaluate.fingerprint import REMEDY, Fingerprint
from paredown.models.json_file import read_json_object

NAME = "verification.json"
FORMAT = 1


def write_verification(
    folder: Path, figures: Mapping[str, object], fingerprint: Fingerprint
) -> None:
    """`figures` are for people; they must be JSON. Raises OSError."""
    fields = {"format": FORMAT, **figures, "fingerprint": fingerprint.as_json()}
    fields["sha256"] = _digest(fields)
    # A line for each field: an indented table of logits would hide the figures.
    lines = (f"{json.dumps(name)}: {json.dumps(fields[name], allow_nan=False)}" for name in fields)
    (folder / NAME).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def read_fingerprint(folder: Path) -> Fingerprint | None:
    """What the checkpoint in `folder` must reproduce; None where it has no verification.json.
    Raises CheckpointError for one that is damaged, or of another format."""
    path = folder / NAME
    if not path.exists():
        return None
    fields = read_json_object(path)
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
    try:
        return Fingerprint.from_json(_object(fields["fingerprint"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged", seen=error, remedy=REMEDY) from error


def _digest(fields: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError("the fingerprint is no object")
    return value
