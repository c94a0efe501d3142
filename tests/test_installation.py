"""What is missing from an installation is told in one line, with the command that mends it."""

import tomllib
from pathlib import Path

import pytest

import paredown
from drivers.damaged_installation import GENERATE, Installation, assert_one_line
from paredown.errors import InstallationError
from paredown.installation import (
    DEPENDENCIES,
    EXTRAS,
    MIN_PYTHON,
    check_python,
    explain,
    install_command,
    raise_explained,
)

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {requirement.partition(">")[0] for requirement in requirements}


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "site")


def test_there_is_one_version() -> None:
    assert PROJECT["version"] == paredown.__version__


def test_what_is_said_to_be_needed_is_what_the_project_asks_for() -> None:
    assert names(PROJECT["dependencies"]) == set(DEPENDENCIES.values())
    for extra, packages in EXTRAS.items():
        assert names(PROJECT["optional-dependencies"][extra]) == set(packages.values())
    assert PROJECT["requires-python"] == f">={MIN_PYTHON[0]}.{MIN_PYTHON[1]}"


@pytest.mark.parametrize("module", ["numpy", "tokenizers"])
def test_a_dependency_that_is_not_there(module: str, installation: Installation) -> None:
    done = installation.run(*GENERATE, before=f"sys.modules[{module!r}] = None")
    assert_one_line(done, f"needs {module}", f"-m pip install {module}`")


@pytest.mark.parametrize("module", ["uvicorn", "pydantic"])
def test_a_dependency_of_the_server(module: str, installation: Installation) -> None:
    done = installation.run("serve", "--port", "0", before=f"sys.modules[{module!r}] = None")
    assert_one_line(done, f"needs {module}", f"-m pip install {module}`")


@pytest.mark.parametrize("module", ["torch", "yaml"])
def test_an_extra_that_is_not_there(module: str, installation: Installation) -> None:
    """Its packages are named: the extra's own name is known to an index or a checkout alone."""
    done = installation.run("compress", before=f"sys.modules[{module!r}] = None")
    assert_one_line(done, f"needs {module}", "-m pip install matplotlib torch pyyaml`")


def test_in_python_it_is_a_typed_error(installation: Installation) -> None:
    done = installation.run_python(
        "sys.modules['tokenizers'] = None\nimport paredown\n"
        "try:\n    paredown.LLM\n"
        "except paredown.InstallationError as error:\n"
        "    assert isinstance(error, ImportError); print(error.remedy)"
    )
    assert done.returncode == 0, done.stderr
    assert "pip install tokenizers" in done.stdout


def test_a_dependency_whose_files_are_damaged(installation: Installation) -> None:
    """Half of a package was removed: its import fails in its own words, here on several lines."""
    broken = installation.folder / "tokenizers"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no such symbol\\n\\nRead this page')")
    done = installation.run(*GENERATE)
    assert_one_line(done, "tokenizers cannot be imported", "no such symbol", "--force-reinstall")


def test_a_file_of_the_package_that_is_not_there(installation: Installation) -> None:
    (installation.package / "engine" / "detokenize.py").unlink()
    done = installation.run(*GENERATE)
    assert_one_line(done, "no module paredown.engine.detokenize", "-m pip install")


@pytest.mark.parametrize("words", [GENERATE, ("--help",), ("serve",)])
def test_a_python_that_is_too_old(words: tuple[str, ...], installation: Installation) -> None:
    done = installation.run(*words, before="sys.version_info = (3, 10, 14, 'final', 0)")
    assert_one_line(done, "Python 3.11 or newer", "saw: Python 3.10", "python3.11 -m venv")


def test_a_python_that_is_too_old_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 9, 2, "final", 0))
    with pytest.raises(InstallationError, match=r"Python 3\.9"):
        check_python()


def test_a_dependency_of_a_dependency_is_mended_by_the_package_itself() -> None:
    error = ModuleNotFoundError("No module named 'anyio'", name="anyio")
    found = explain(error)
    assert "needs anyio" in found.what
    assert install_command(with_dependencies=True) in found.remedy


def test_what_was_explained_is_not_explained_again() -> None:
    error = InstallationError("it is broken", seen=1, remedy="Mend it.")
    with pytest.raises(InstallationError) as caught:
        raise_explained(error)
    assert caught.value is error
