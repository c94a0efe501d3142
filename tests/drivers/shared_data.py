"""The data that some tests need: folders below $PAREDOWN_DATA, which a plain clone does not have.

Where the variable is not set those tests are skipped. Where it is set, a folder that is missing
fails the run (tests/conftest.py): a machine with the data has no test that quietly did not run.
"""

import os
from pathlib import Path

import pytest

VARIABLE = "PAREDOWN_DATA"


def data_folder(name: str) -> Path | None:
    """The folder `name` of the data; None where it is not there."""
    root = os.environ.get(VARIABLE)
    folder = Path(root, name) if root else None
    return folder if folder is not None and folder.is_dir() else None


def needs_data(name: str) -> pytest.MarkDecorator:
    """Skips a test where the folder `name` is missing."""
    return pytest.mark.skipif(data_folder(name) is None, reason=f"${VARIABLE} has no {name}")
