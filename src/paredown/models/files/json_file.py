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


def read_json_object(path: Path, max_bytes: int = MAX_CONFIG_BYTES) -> dict[str, object]:
    """Returns the JSON object in `path`, a file of a model. Raises CheckpointError if there is
    none."""
    try:
        value = parse_json(read_model_file(path, max_bytes))
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
    """Does what `read_json_object` does, but returns {} for a missing file."""
    return read_json_object(path) if is_there(path) else {}
