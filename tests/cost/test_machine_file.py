"""What was measured is kept for its machine: where, whole, and for no other."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from cost.test_fit_steps import TRUTH
from paredown.cost.machine_file import (
    find_step_fit,
    machine_folder,
    machine_path,
    need_step_fit,
    save_step_fit,
)
from paredown.errors import ConfigError, OutputError


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAREDOWN_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({}, "home/.cache/paredown/machines"),
        ({"PAREDOWN_CACHE": "{0}/own"}, "own/machines"),
        ({"PAREDOWN_CACHE": "off"}, "home/.cache/paredown/machines"),
        ({"PAREDOWN_CACHE": ""}, "home/.cache/paredown/machines"),
        ({"XDG_CACHE_HOME": "{0}/xdg"}, "xdg/paredown/machines"),
        ({"XDG_CACHE_HOME": "relative"}, "home/.cache/paredown/machines"),
        ({"PAREDOWN_CACHE": "{0}/own", "XDG_CACHE_HOME": "{0}/xdg"}, "own/machines"),
    ],
)
def test_where_it_lies(
    variables: dict[str, str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    assert machine_folder() == tmp_path / folder


def test_each_machine_has_a_file_of_its_own() -> None:
    paths = [
        machine_path(name, isa, num_threads)
        for name, isa, num_threads in itertools.product(("a", "b"), ("avx2", "amx"), (1, 2, 12))
    ]
    assert len(set(paths)) == len(paths)
    assert machine_path("a\nb", "c", 1) == machine_path("a\nb", "c", 1)


def test_the_last_measurement_counts() -> None:
    roofs = TRUTH.roofs
    assert find_step_fit(roofs.name, TRUTH.isa, TRUTH.num_threads) is None
    save_step_fit(TRUTH)
    later = replace(TRUTH, rates=replace(TRUTH.rates, step_s=1.0))
    path = save_step_fit(later)
    assert find_step_fit(roofs.name, TRUTH.isa, TRUTH.num_threads) == later
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_file_is_there_whole_or_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_step_fit(TRUTH)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError, match="No space left"):
        save_step_fit(replace(TRUTH, rates=replace(TRUTH.rates, step_s=1.0)))
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert find_step_fit(TRUTH.roofs.name, TRUTH.isa, TRUTH.num_threads) == TRUTH


def test_a_calibration_is_kept_for_its_machine_alone(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAREDOWN_CACHE", str(tmp_path))
    name = TRUTH.roofs.name
    assert find_step_fit(name, "amx", 2) is None
    path = save_step_fit(TRUTH)
    assert find_step_fit(name, "amx", 2) == TRUTH
    assert find_step_fit(name, "amx", 4) is None
    with pytest.raises(ConfigError, match=r"doctor --sweep"):
        need_step_fit(name, "avx2", 2)
    path.write_text("{}")
    assert find_step_fit(name, "amx", 2) is None
    path.write_text("no JSON")
    assert find_step_fit(name, "amx", 2) is None
    monkeypatch.setenv("PAREDOWN_CACHE", str(path))
    with pytest.raises(OutputError, match="could not be written"):
        save_step_fit(TRUTH)


def test_a_user_without_a_home_is_told_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paredown.cost.machine_file.user_cache_folder", lambda: None)
    assert find_step_fit("any", "generic", 1) is None
    with pytest.raises(OutputError, match="PAREDOWN_CACHE"):
        machine_folder()
