"""Two builds in turn: compiled commits, the drivers that run them, and the arithmetic."""

import pickle
import subprocess
from pathlib import Path

import pytest

import benchmarks
import paredown
from benchmarks.build import ROOT, Build
from benchmarks.build_cases import Choice, LoadingCase, chosen_cases
from benchmarks.build_loading import NUM_WARM_STARTS, loading_seconds
from benchmarks.builds import EARLIER, EXIT_BAD_INPUT, Bars, TimeRatio, main
from benchmarks.cases import Case
from benchmarks.checkpoints.cache import Variant
from benchmarks.commit_build import BuildError, built_commit, commit_id
from benchmarks.peers import OURS, Target
from benchmarks.peers.child import ChildPeer, PeerError
from benchmarks.peers.peer import LoadOptions
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


def test_a_commit_is_built_once_as_it_was_with_its_tree(repository, tmp_path) -> None:
    folder = tmp_path / "builds"
    commit = commit_id("HEAD~1", repository)
    build = built_commit(commit, folder, repository)
    assert build.packages is not None
    assert (build.packages / "thing.py").read_text() == "NUMBER = 1\n"
    assert (build.tree / "backend.py").read_text() == BACKEND
    assert [entry.name for entry in folder.iterdir()] == [commit]
    (build.packages / "thing.py").write_text("kept")
    assert built_commit(commit, folder, repository) == build
    assert (build.packages / "thing.py").read_text() == "kept"


def test_a_build_that_fails_says_why_and_leaves_nothing(repository, tmp_path) -> None:
    folder = tmp_path / "builds"
    with pytest.raises(BuildError, match=r"thing\.py"):
        built_commit(commit_id("HEAD", repository), folder, repository)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("ref", ["no-such-branch", "", "--help", "HEAD:thing.py"])
def test_what_is_no_commit_is_named(repository, ref: str) -> None:
    with pytest.raises(ConfigError, match="no such commit"):
        commit_id(ref, repository)


PLACE = """
import numpy
import paredown

class Place:
    def modules(self):
        return __file__, paredown.__file__
"""


@pytest.fixture
def build(tmp_path) -> Build:
    """Another build: drivers that say where they lie, and a package of its own."""
    tree, packages = tmp_path / "tree", tmp_path / "packages"
    for source, names in {
        Path(benchmarks.__path__[0]): ["__init__.py", "build.py", "checkpoints/__init__.py"],
        Path(benchmarks.__path__[0], "peers"): ["__init__.py", "__main__.py", "child.py"],
    }.items():
        for name in names:
            copy = tree / source.relative_to(ROOT) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text((source / name).read_text())
    (tree / "benchmarks" / "place.py").write_text(PLACE)
    (packages / "paredown").mkdir(parents=True)
    for name in ("__init__.py", "errors.py", "shown.py"):
        text = (Path(paredown.__file__).parent / name).read_text()
        (packages / "paredown" / name).write_text(text)
    return Build(tree=tree, packages=packages)


def test_a_child_runs_the_driver_and_the_package_of_its_build(build, tmp_path) -> None:
    child = ChildPeer(Target(target="benchmarks.place:Place", build=build), tmp_path / "log")
    try:
        assert child.call("modules") == (
            str(build.tree / "benchmarks" / "place.py"),
            str(build.packages / "paredown" / "__init__.py"),
        )
    finally:
        child.stop()


def test_a_driver_without_a_method_is_named(build, tmp_path) -> None:
    child = ChildPeer(Target(target="benchmarks.place:Place", build=build), tmp_path / "log")
    try:
        with pytest.raises(PeerError, match="has no attribute 'prefill'"):
            child.call("prefill", [1])
    finally:
        child.stop()


def test_what_is_sent_has_the_names_that_older_drivers_know() -> None:
    sent = pickle.dumps(
        (
            Variant(model="m", format="f", output_format="o"),
            LoadOptions(num_threads=1, num_tokens=2, num_sequences=3, kv_dtype="int8"),
        ),
        protocol=0,
    )
    assert b"cbenchmarks.checkpoints.cache\nVariant\n" in sent
    assert b"cbenchmarks.peers.peer\nLoadOptions\n" in sent
    assert list(vars(Variant(model="m", format="f"))) == ["model", "format", "output_format"]
    options = LoadOptions(num_threads=1, num_tokens=1)
    assert list(vars(options)) == ["num_threads", "num_tokens", "num_sequences", "kv_dtype"]


# Keeps packed weights at its second start, and is ten times slower without them.
PHASES = """
import json
import os
import pathlib
import sys

folder, num_threads = sys.argv[1:]
scale = int(num_threads)
cache = os.environ["PAREDOWN_CACHE"]
times = {"import": 1, "open": 2, "load": 100, "tokenizer": 4, "first_token": 8, "huge_pages": 0.5}
if cache != "off":
    place = pathlib.Path(cache)
    if not place.exists():
        place.mkdir()
    elif not (place / "weights.packed").exists():
        (place / "weights.packed").write_text(folder)
    else:
        times["load"] = 10
print(json.dumps({name: scale * seconds for name, seconds in times.items()}))
"""


def loading_builds(tmp_path: Path, drivers: dict[str, str]) -> dict[str, Build]:
    builds = {}
    for name, driver in drivers.items():
        folder = tmp_path / name / "benchmarks"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "loading_phases.py").write_text(driver)
        builds[name] = Build(tree=tmp_path / name)
    return builds


def load(tmp_path: Path, drivers: dict[str, str], task: str) -> dict[str, list[float]]:
    case = LoadingCase(task=task, variant=Variant(model="m", format="bf16"))
    builds = loading_builds(tmp_path, drivers)
    work = tmp_path / "work"
    try:
        return loading_seconds(builds, case, tmp_path, work, num_threads=2, num_rounds=3)
    finally:
        assert list(work.iterdir()) == []


def test_packing_is_the_load_alone_and_a_mapped_start_all_phases(tmp_path) -> None:
    twice = PHASES.replace("scale = int", "scale = 2 * int")
    drivers = {OURS: PHASES, EARLIER: twice}
    assert load(tmp_path / "a", drivers, "packing") == {OURS: [200] * 3, EARLIER: [400] * 3}
    assert load(tmp_path / "b", drivers, "mapped") == {OURS: [50] * 3, EARLIER: [100] * 3}


def test_a_build_that_cannot_load_or_keeps_nothing_is_named(tmp_path) -> None:
    failing = "raise SystemExit('this folder is none')"
    with pytest.raises(PeerError, match="packing m bf16: exit status 1: this folder is none"):
        load(tmp_path / "a", {OURS: PHASES, EARLIER: failing}, "packing")
    keeping = '(place / "weights.packed").write_text(folder)'
    assert keeping in PHASES
    counting = PHASES.replace(keeping, "open(folder + '/starts', 'a').write('x')")
    with pytest.raises(PeerError, match="mapped m bf16: no start kept its packed weights"):
        load(tmp_path / "b", {OURS: counting}, "mapped")
    assert (tmp_path / "b" / "starts").read_text() == "x" * (NUM_WARM_STARTS - 1)


STEP = Case(task="decode", variant=Variant(model="m", format="bf16"), prompt_tokens=64, num_steps=4)
LOADING = LoadingCase(task="mapped", variant=Variant(model="m", format="bf16"))
SECONDS = {EARLIER: [1.0, 2.0, 4.0, 8.0, 4.0], OURS: [0.5, 1.6, 4.0, 9.6, 3.0]}


def test_the_ratio_of_times_is_that_of_each_round() -> None:
    row = TimeRatio.of(STEP, SECONDS)
    assert row.median == pytest.approx(0.8)
    assert (row.lower_quartile, row.upper_quartile) == pytest.approx((0.75, 1.0))
    assert (row.earlier_s, row.later_s) == pytest.approx((1.0, 0.75))
    loading = TimeRatio.of(LOADING, SECONDS)
    assert loading.earlier_s == pytest.approx(4.0)
    # 1.6 of 2.0 seconds.
    assert loading.quiet_ratio == pytest.approx(0.8)
    slow = SECONDS | {OURS: [0.5, 1.6, 40.0, 96.0, 30.0]}
    assert TimeRatio.of(LOADING, slow).quiet_ratio == loading.quiet_ratio


def test_a_bar_is_for_a_steps_upper_quartile_and_for_quiet_loading() -> None:
    rows = {case: TimeRatio.of(case, SECONDS) for case in (STEP, LOADING)}

    def held(steps: float | None, loading: float | None) -> list[bool]:
        bars = Bars(steps=steps, loading=loading)
        return [bars.hold(case, row) for case, row in rows.items()]

    assert held(1.0, 0.81) == [True, True]
    assert held(0.99, None) == [False, True]
    assert held(None, 0.79) == [True, False]


def test_cases_of_builds_are_prompts_steps_and_loading() -> None:
    cases = chosen_cases(Choice(models=["qwen2.5-0.5b", "llama-3.2-1b"]), num_steps=4)
    steps = [case for case in cases if isinstance(case, Case)]
    assert {case.task for case in steps} == {"prefill", "decode"}
    assert {case.num_steps for case in steps} == {0, 4}
    assert all(case.with_peers for case in steps)
    assert {case.task for case in cases} - {"prefill", "decode"} == {"packing", "mapped"}
    names = [case.name for case in cases]
    assert len(names) == len(set(names))
    with pytest.raises(ConfigError, match="no case has these words"):
        chosen_cases(Choice(words=["b9"]), num_steps=4)


def test_one_model_is_chosen_in_each_format_by_words() -> None:
    choice = Choice(
        models=["llama-3.2-1b"], formats=["int4-g32", "int8", "w8a8", "bf16"], without=["b32"]
    )
    names = [case.name for case in chosen_cases(choice, num_steps=4)]
    for name in ("int4-g32-head-int8", "int8-head-int8", "w8a8-head-int8", "bf16"):
        for case in ("prefill {} p512", "decode {} p64", "decode {} p128 b8"):
            task, rest = case.split(" ", 1)
            assert f"{task} llama-3.2-1b {rest.format(name)}" in names
        assert {f"packing llama-3.2-1b {name}", f"mapped llama-3.2-1b {name}"} <= set(names)
    assert len(names) == 4 * 5 + len([name for name in names if "p4096" in name])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["HEAD", "--rounds", "1"], "1 rounds, 21 of loading, 4 steps"),
        (["HEAD", "--loading-rounds", "1"], "15 rounds, 1 of loading, 4 steps"),
        (["HEAD", "--steps", "0"], "15 rounds, 21 of loading, 0 steps"),
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
