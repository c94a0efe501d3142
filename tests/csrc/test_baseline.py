"""Nothing beyond the baseline of the processor runs before it was asked what it can do."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OBJECTS = sorted(ROOT.glob("build/check/CMakeFiles/kernels_*.dir/csrc/kernels/isa_table.cpp.o"))


@pytest.mark.skipif(not OBJECTS or shutil.which("nm") is None, reason="no objects of a build here")
def test_the_objects_of_an_instruction_set_keep_their_code_to_themselves() -> None:
    """No constructor that the loader would run. No function that other objects have too either:
    the linker keeps one of them for all, and could keep one with AVX-512 for the baseline."""
    for path in OBJECTS:
        listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listing.splitlines()]
        shared = [name for *_, kind, name in rows if kind in "WVi" and "personality" not in name]
        started = [name for *_, name in rows if name.startswith("_GLOBAL__sub_I")]
        assert not shared, path
        assert not started, path
