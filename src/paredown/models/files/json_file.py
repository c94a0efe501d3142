"""JSON files of a checkpoint, read with errors that name the file."""

from pathlib import Path

from paredown.errors import CheckpointError
from paredown.json_text import JsonTextError, parse_json
from paredown.models.files.whole_file import unreadable


def read_json_object(path: Path) -> dict[str, object]:
    """The object in `path`. Raises CheckpointError when there is none to be had."""
    try:
        value = parse_json(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except JsonTextError as error:
        raise CheckpointError(
            f"{path} is not valid JSON",
            seen=error,
            remedy="Download the file again, or correct it.",
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{path} does not hold a JSON object",
            seen=type(value).__name__,
            remedy="Download the file again, or correct it.",
        )
    return value


def read_optional_json_object(path: Path) -> dict[str, object]:
    """Does what `read_json_object` does, but gives {} for a file that is not there."""
    return read_json_object(path) if path.exists() else {}
