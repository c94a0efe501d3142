"""Two builds in turn: compiled commits, the child that imports them, and the arithmetic."""

import subprocess
from pathlib import Path

import pytest

import paredown
from benchmarks.builds import EARLIER, EXIT_BAD_INPUT, TimeRatio, chosen_cases, main
from benchmarks.commit_build import BuildError, built_commit, commit_id
from benchmarks.peers import OURS, Target
from benchmarks.peers.child import ChildPeer
from benchmarks.rounds import Run
from paredown.errors import ConfigError

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "thing"
version = "1"
"""
BACKEND = """
import pathlib
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(pathlib.Path(folder, "thing-1-py3-none-any.whl"), "w") as wheel:
        wheel.write("thing.py")
        info = "thing-1.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1\\n")
        tags = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(info + "WHEEL", tags)
        wheel.writestr(info + "RECORD", "")
    return "thing-1-py3-none-any.whl"
"""


def git(root: Path, *words: str) -> None:
    names = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *names, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path) -> Path:
    """Two commits of a project: one that installs, and one whose build fails."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "backend.py").write_text(BACKEND)
    (root / "thing.py").write_text("NUMBER = 1\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "one")
    (root / "thing.py").unlink()
    git(root, "commit", "--quiet", "-a", "-m", "two")
    return root


def test_a_commit_is_built_once_as_it_was(repository, tmp_path) -> None:
    folder = tmp_path / "builds"
    commit = commit_id("HEAD~1", repository)
    packages = built_commit(commit, folder, repository)
    assert (packages / "thing.py").read_text() == "NUMBER = 1\n"
    (packages / "thing.py").write_text("kept")
    assert built_commit(commit, folder, repository) == packages
    assert (packages / "thing.py").read_text() == "kept"


def test_a_build_that_fails_says_why_and_leaves_nothing(repository, tmp_path) -> None:
    folder = tmp_path / "builds"
    with pytest.raises(BuildError, match=r"thing\.py"):
        built_commit(commit_id("HEAD", repository), folder, repository)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("ref", ["no-such-branch", "", "--help", "HEAD:thing.py"])
def test_what_is_no_commit_is_named(repository, ref: str) -> None:
    with pytest.raises(ConfigError, match="no such commit"):
        commit_id(ref, repository)


def test_a_child_imports_the_packages_of_its_folder(tmp_path) -> None:
    earlier = tmp_path / "packages" / "paredown"
    earlier.mkdir(parents=True)
    for name in ("__init__.py", "errors.py"):
        (earlier / name).write_text((Path(paredown.__file__).parent / name).read_text())
    (earlier / "place.py").write_text(
        "import numpy\n\n\nclass Place:\n    def folder(self):\n        return __file__\n"
    )
    target = Target(target="paredown.place:Place", packages=tmp_path / "packages")
    child = ChildPeer(target, tmp_path / "log")
    try:
        assert child.call("folder") == str(earlier / "place.py")
    finally:
        child.stop()


def test_the_ratio_of_times_is_that_of_each_round() -> None:
    case = chosen_cases(["b8", "int4-g32-head-int8"], ["llama-3.2-1b"], num_steps=4)[0]
    seconds = {EARLIER: [1.0, 2.0, 4.0, 8.0, 4.0], OURS: [0.5, 1.6, 4.0, 9.6, 3.0]}
    row = TimeRatio.of(Run(case=case, seconds=seconds, failures={}, settings={}, limits=[]))
    assert row.median == pytest.approx(0.8)
    assert (row.lower_quartile, row.upper_quartile) == pytest.approx((0.75, 1.0))
    assert (row.earlier_s, row.later_s) == pytest.approx((1.0, 0.75))


def test_cases_of_builds_are_prompts_and_steps() -> None:
    cases = chosen_cases([], ["qwen2.5-0.5b", "llama-3.2-1b"], num_steps=4)
    assert {case.task for case in cases} == {"prefill", "decode"}
    assert {case.num_steps for case in cases} == {0, 4}
    assert all(case.with_peers for case in cases)
    with pytest.raises(ConfigError, match="no case has these words"):
        chosen_cases(["b9"], ["llama-3.2-1b"], num_steps=4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["HEAD", "--rounds", "1"], "1 rounds, 4 steps"),
        (["HEAD", "--steps", "0"], "15 rounds, 0 steps"),
        (["no-such-branch", "--after", "HEAD"], "no such commit"),
        (["HEAD", "--after", "no-such-branch"], "no such commit"),
        (["HEAD", "--cases", "b9"], "no case has these words"),
    ],
)
def test_bad_input_is_named_before_anything_is_made(
    monkeypatch, capsys, tmp_path, words: list[str], message: str
) -> None:
    monkeypatch.setattr("sys.argv", ["builds", *words, "--folder", str(tmp_path)])
    assert main() == EXIT_BAD_INPUT
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
