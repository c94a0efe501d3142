"""A native module that is missing or does not fit is told of in one line, with what mends it."""

import shutil
from pathlib import Path

import pytest

import paredown
from drivers.damaged_installation import CORE, GENERATE, Installation, assert_one_line
from paredown.kernels import _core
from paredown.kernels.native_module import check_native_module, interface_digest

# What a mending command begins with, wherever this Python lies.
INSTALL = "-m pip install"
TYPED = (
    "import paredown\n"
    "try:\n    paredown.LLM\n"
    "except paredown.InstallationError as error:\n    print(error)"
)


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "site")


def test_this_installation_is_whole() -> None:
    check_native_module()
    assert (paredown.__version__, interface_digest()) == (_core.VERSION, _core.INTERFACE)


def test_the_copy_works_before_it_is_damaged(installation: Installation) -> None:
    done = installation.run(*GENERATE)
    assert done.returncode == 0, done.stderr
    done = installation.run_python("import paredown.kernels as k; print(k.__file__)")
    assert done.stdout.strip() == str(installation.package / "kernels" / "__init__.py")


def test_without_a_native_module(installation: Installation) -> None:
    installation.core.unlink()
    assert_one_line(installation.run(*GENERATE), "there is no native module", INSTALL)
    typed = installation.run_python(TYPED)
    assert typed.returncode == 0, typed.stderr
    assert "there is no native module" in typed.stdout


def test_a_native_module_for_another_python(installation: Installation) -> None:
    other = "_core.cpython-399-riscv64-linux-gnu.so"
    installation.core.rename(installation.core.with_name(other))
    assert_one_line(installation.run(*GENERATE), other, "for this Python and processor", INSTALL)


def test_a_file_that_is_no_library(installation: Installation) -> None:
    installation.core.unlink()
    installation.core.write_bytes(b"\x7fELF and then nothing")
    assert_one_line(installation.run(*GENERATE), "cannot be loaded", INSTALL)


def test_a_library_of_a_newer_glibc(installation: Installation) -> None:
    """The library asks for a version that no system has: the loader's own refusal."""
    content = CORE.read_bytes()
    asked = sorted(set(_glibc_names(content)))[-1]
    newer = b"GLIBC_9." + b"9" * (len(asked) - len(b"GLIBC_9."))
    installation.core.unlink()
    installation.core.write_bytes(content.replace(asked + b"\0", newer + b"\0"))
    done = installation.run(*GENERATE)
    number = newer.removeprefix(b"GLIBC_").decode()
    assert_one_line(done, "is too old", f"needs glibc {number}", "--no-binary paredown")


def _glibc_names(content: bytes) -> list[bytes]:
    names = (part for part in content.split(b"\0") if part.startswith(b"GLIBC_2."))
    return [name for name in names if len(name) == len(b"GLIBC_2.34")]


@pytest.mark.parametrize("has_version", [True, False])
def test_a_native_module_that_an_upgrade_left(
    has_version: bool, installation: Installation
) -> None:
    """A module in Python stands for it, since no second core is at hand."""
    installation.core.unlink()
    stale = installation.package / "kernels" / "_core.py"
    stale.write_text("VERSION, INTERFACE = '0.0.1', 'x'" if has_version else "")
    done = installation.run(*GENERATE)
    assert_one_line(done, "another version of the package", paredown.__version__, INSTALL)


def test_a_native_module_of_other_files_of_the_same_version(installation: Installation) -> None:
    interface = installation.package / "kernels" / "_core.pyi"
    content = interface.read_text()
    interface.unlink()
    interface.write_text(content + "\ndef newer() -> None: ...\n")
    done = installation.run(*GENERATE)
    assert_one_line(done, f"other files of {paredown.__version__}", INSTALL)


def test_a_checkout_is_mended_from_the_checkout(installation: Installation) -> None:
    checkout = installation.folder.parent / "checkout"
    (checkout / "src").mkdir(parents=True)
    shutil.move(installation.package, checkout / "src" / "paredown")
    (checkout / "pyproject.toml").write_text('[project]\nname = "paredown"\n')
    (checkout / "src" / "paredown" / "kernels" / CORE.name).unlink()
    installation.folder = checkout / "src"
    assert_one_line(installation.run(*GENERATE), f"pip install --editable {checkout}`")
