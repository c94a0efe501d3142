"""JSON files of a checkpoint, read with errors that name the file."""

from pathlib import Path

from paredown.errors import CheckpointError
from paredown.files.model_file import read_model_file
from paredown.json_text import JsonTextError, parse_json
from paredown.models.files.whole_file import is_there, unreadable
from paredown.units import MEBI

# Larger than any config. Parsing may need twenty times a text's size in memory.
MAX_CONFIG_BYTES = 16 * MEBI
# Larger than an index of a million tensors, and than any proof.
MAX_TABLE_BYTES = 64 * MEBI
# Larger than any tokenizer.json; those of a million tokens have 60 MiB.
MAX_TOKENIZER_BYTES = 256 * MEBI


def read_json_object(
    path: Path, max_bytes: int = MAX_CONFIG_BYTES, folder: Path | None = None
) -> dict[str, object]:
    """Returns the JSON object in `path`, a file of the model in `folder`, by default the file's
    own. Raises CheckpointError if there is none."""
    value = _read_json(path, max_bytes, folder)
    if not isinstance(value, dict):
        raise _wrong_kind(path, "object", value)
    return value


def read_json_list(path: Path, max_bytes: int = MAX_CONFIG_BYTES) -> list[object]:
    """Returns the JSON list in `path`, a file of a model. Raises CheckpointError if there is
    none."""
    value = _read_json(path, max_bytes, None)
    if not isinstance(value, list):
        raise _wrong_kind(path, "list", value)
    return value


def _read_json(path: Path, max_bytes: int, folder: Path | None) -> object:
    try:
        return parse_json(read_model_file(path, max_bytes, folder))
    except OSError as error:
        raise unreadable(path, error) from error
    except JsonTextError as error:
        raise CheckpointError(
            f"{path} is not valid JSON",
            seen=error,
            remedy="Download the file again, or correct it.",
        ) from error


def _wrong_kind(path: Path, wanted: str, value: object) -> CheckpointError:
    return CheckpointError(
        f"{path} does not hold a JSON {wanted}",
        seen=type(value).__name__,
        remedy="Download the file again, or correct it.",
    )


def read_optional_json_object(path: Path, folder: Path | None = None) -> dict[str, object]:
    """Does what `read_json_object` does, but returns {} for a missing file."""
    return read_json_object(path, folder=folder) if is_there(path) else {}
