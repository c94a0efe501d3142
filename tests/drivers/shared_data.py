"""The data for some tests: folders below $PAREDOWN_DATA, which a plain clone lacks.

Without the variable, those tests are skipped. With it, a missing folder fails the run
(tests/conftest.py), so that no test is skipped silently on a machine with the data.
"""

import os
from pathlib import Path

import pytest

VARIABLE = "PAREDOWN_DATA"


def data_folder(name: str) -> Path | None:
    """Returns the folder `name` of the data, or None if it is missing."""
    root = os.environ.get(VARIABLE)
    folder = Path(root, name) if root else None
    return folder if folder is not None and folder.is_dir() else None


def needs_data(name: str) -> pytest.MarkDecorator:
    """Skips a test where the folder `name` is missing."""
    return pytest.mark.skipif(data_folder(name) is None, reason=f"${VARIABLE} has no {name}")
