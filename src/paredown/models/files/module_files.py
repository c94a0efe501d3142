"""The files by which an encoder's folder says what its parts are and how its texts are read."""

from collections.abc import Iterator
from pathlib import Path

from paredown.models.files.shards import SINGLE_NAME
from paredown.models.heads.late_interaction import METADATA
from paredown.models.heads.module_list import CONFIG, MODULES, read_modules
from paredown.models.heads.text_settings import SHARED, TRANSFORMER

# Files of sentence-transformers and ColBERT beside config.json.
SETTINGS = (MODULES, SHARED, TRANSFORMER, METADATA)


def module_files(folder: Path) -> Iterator[str]:
    """Yields the files of the modules behind the transformer: configs and weights. Raises
    CheckpointError or UnsupportedError for a list that cannot be read."""
    for module in read_modules(folder):
        if module.folder:
            yield f"{module.folder}/{CONFIG}"
            yield f"{module.folder}/{SINGLE_NAME}"
