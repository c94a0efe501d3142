"""Starts of processes: what is timed, and processes that do not come to their first byte."""

import sys
from pathlib import Path

import pytest

from benchmarks import rounds
from benchmarks.cases import Case
from benchmarks.checkpoints.cache import Variant
from benchmarks.first_token import StartError, seconds_to_first_byte
from benchmarks.peers import OURS


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_first_byte_counts_and_not_the_end() -> None:
    code = "import sys, time; print(1, flush=True); time.sleep(1)"
    assert seconds_to_first_byte(python(code)) < 0.9


def test_a_process_may_say_more_than_a_pipe_holds() -> None:
    code = "import sys; sys.stderr.write('x' * 1_000_000); print(1)"
    assert seconds_to_first_byte(python(code)) > 0


def test_a_process_without_a_first_byte_says_why() -> None:
    with pytest.raises(StartError, match=r"exit status 3 .*no model"):
        seconds_to_first_byte(python("import sys; sys.stderr.write('no model'); sys.exit(3)"))
    with pytest.raises(StartError, match="exit status 4"):
        seconds_to_first_byte(python("import sys; print(1, flush=True); sys.exit(4)"))


def test_a_process_that_hangs_is_ended() -> None:
    with pytest.raises(StartError, match="exit status -9"):
        seconds_to_first_byte(python("import time; time.sleep(100)"), timeout_s=0.3)


def test_starts_take_turns_with_the_fastest_of_their_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[str]()

    def fake_seconds(command: list[str]) -> float:
        calls.append(command[0])
        if command[0] == "broken":
            raise StartError("no such model")
        return {"ours": 0.1, "slow": 0.9, "fast": 0.2}[command[0]]

    commands = {
        OURS: lambda *_: {"packed weights": ["ours"]},
        "llama.cpp": lambda *_: {"repacked": ["slow"], "as in the file": ["fast"]},
        "other": lambda *_: {"default": ["broken"]},
    }
    monkeypatch.setattr(rounds, "START_COMMANDS", commands)
    monkeypatch.setattr(rounds, "seconds_to_first_byte", fake_seconds)
    monkeypatch.setattr(rounds, "make_files", lambda *_: None)
    case = Case(
        task="start", variant=Variant(model="tiny-llama", format="int4-g32"), prompt_tokens=0
    )
    names = [OURS, "llama.cpp", "other", "pytorch"]
    run = rounds.run_case(
        None, tmp_path, case, names, num_threads=1, rounds=rounds.Rounds(most=2, case_s=60)
    )
    assert calls[-4:] == ["ours", "fast", "fast", "ours"]
    assert run.seconds == {OURS: [0.1, 0.1], "llama.cpp": [0.2, 0.2]}
    assert run.settings["llama.cpp"] == {"start": "as in the file"}
    assert set(run.failures) == {"other", "pytorch"}
