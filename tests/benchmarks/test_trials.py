"""How a peer's settings are tried: the fastest is found, and what cannot win costs one run."""

from collections import Counter

from benchmarks.peers.trials import LONG_S, NUM_TRIALS, TRIAL_S, try_settings


class Runs:
    """Takes the given seconds for each setting, the first time `first` more."""

    def __init__(self, seconds: dict[str, float], first: dict[str, float] | None = None) -> None:
        self.seconds = seconds
        self.extra = first or {}
        self.count: Counter[str] = Counter()

    def __call__(self, setting: str) -> float:
        self.count[setting] += 1
        extra = self.extra.get(setting, 0.0) if self.count[setting] == 1 else 0.0
        return self.seconds[setting] + extra


def test_settings_that_cannot_win_run_once() -> None:
    runs = Runs({"slow": 20.0, "good": 10.0, "best": 9.0})
    seconds = try_settings(["slow", "good", "best"], runs)
    assert seconds == runs.seconds
    assert runs.count == {"slow": 1, "good": NUM_TRIALS, "best": NUM_TRIALS}


def test_one_contender_needs_no_more_runs() -> None:
    runs = Runs({"slow": 20.0, "best": 10.0})
    assert min(try_settings(["slow", "best"], runs).items(), key=lambda i: i[1]) == ("best", 10.0)
    assert runs.count == {"slow": 1, "best": 1}


def test_a_setting_that_was_held_up_once_can_still_win() -> None:
    short = Runs({"good": 0.2, "best": 0.1}, first={"best": 0.5})
    assert try_settings(["good", "best"], short) == short.seconds
    long = Runs({"good": 10.0, "best": 9.0}, first={"best": 3.0})
    assert try_settings(["good", "best"], long) == long.seconds


def test_very_long_runs_are_not_repeated() -> None:
    runs = Runs({"good": LONG_S + 2, "best": LONG_S + 1})
    assert try_settings(["good", "best"], runs) == runs.seconds
    assert runs.count == {"good": 1, "best": 1}


def test_short_runs_are_repeated_until_they_say_something() -> None:
    runs = Runs({"good": 0.002, "best": 0.001})
    assert try_settings(["good", "best"], runs) == runs.seconds
    assert runs.count["best"] == runs.count["good"] == int(TRIAL_S / 0.002)
