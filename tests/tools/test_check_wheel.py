"""The check of the wheel finds what it is there to find."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools.check_wheel import (
    SDIST_NAMES,
    Figure,
    as_table,
    check_sdist,
    needed_glibc,
    wheel_figures,
)


def write_wheel(folder: Path, tag: str, library: bytes) -> Path:
    wheel = folder / f"paredown-0.1.0-cp311-cp311-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("paredown/kernels/_core.so", library)
    return wheel


def write_sdist(folder: Path, *names: str) -> Path:
    sdist = folder / "paredown-0.1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"paredown-0.1.0/{name}"), io.BytesIO())
    return sdist


def test_the_newest_symbol_counts(tmp_path: Path) -> None:
    library = b"GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.4\0GLIBCXX_3.4.29\0"
    wheel = write_wheel(tmp_path, "manylinux_2_34_x86_64", library)
    assert needed_glibc(wheel) == (2, 34)
    assert all(one.holds for one in wheel_figures(wheel))


@pytest.mark.parametrize("tag", ["manylinux_2_17_x86_64", "linux_x86_64"])
def test_a_tag_that_promises_too_much_is_found(tag: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        wheel_figures(write_wheel(tmp_path, tag, b"GLIBC_2.34\0"))


@pytest.mark.parametrize("more", ["tests/test_a.py", ".venv/bin/python", "src/a.so", "src/a.pyc"])
def test_an_sdist_with_more_than_a_build_needs_is_found(more: str, tmp_path: Path) -> None:
    check_sdist(write_sdist(tmp_path, *SDIST_NAMES))
    with pytest.raises(AssertionError):
        check_sdist(write_sdist(tmp_path, *SDIST_NAMES, more))


def test_a_missed_bound_is_marked() -> None:
    figures = [
        Figure(name="held", value=25, unit="MB", bound=25),
        Figure(name="missed", value=25.1, unit="MB", bound=25),
        Figure(name="told", value=1e9, unit="s"),
    ]
    assert [one.holds for one in figures] == [True, False, True]
    (row,) = [line for line in as_table("wheel", figures).splitlines() if "MISSED" in line]
    assert row.startswith("missed")
