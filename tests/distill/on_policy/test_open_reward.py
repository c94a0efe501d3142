"""A reward is found by its name, and whatever is wrong with that is told before any work."""

from pathlib import Path

import pytest

from paredown.distill.on_policy.http_reward import HttpReward
from paredown.distill.on_policy.open_reward import open_reward
from paredown.errors import ConfigError


def test_a_function_is_found() -> None:
    found = open_reward("drivers.full_stop:score")
    assert list(found.scores(["a", "b"], ["yes.", "no"])) == [1.0, 0.0]


def test_an_address_is_asked() -> None:
    assert open_reward("http://127.0.0.1:9/score") == HttpReward(url="http://127.0.0.1:9/score")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "neither"),
        ("drivers.full_stop", "neither"),
        ("drivers.full_stop:", "neither"),
        (":score", "neither"),
        ("drivers/full_stop.py:score", "neither"),
        ("drivers.full_stop:score()", "neither"),
        ("ftp://host/score", "neither"),
        ("http://", "address is none"),
        ("http://[::1", "address is none"),
        ("drivers.no_such:score", "cannot be loaded: ModuleNotFoundError"),
        ("drivers.full_stop:scores", "no such function"),
        ("drivers.full_stop:__doc__", "no such function"),
    ],
)
def test_what_is_no_reward_is_told(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_reward(name)


def test_a_module_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_reward.py").write_text("raise RuntimeError('no model here')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="RuntimeError: no model here"):
        open_reward("broken_reward:score")


def test_the_working_folder_is_no_place_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the folder of a model."""
    (tmp_path / "model_reward.py").write_text("def score(prompt, answer):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [one for one in __import__("sys").path if one not in ("", ".")])
    with pytest.raises(ConfigError, match="ModuleNotFoundError"):
        open_reward("model_reward:score")
