"""A process that can be stopped: by processor time, by memory, by what it answers."""

import signal
import sys
import time
from collections.abc import Iterator

import pytest

from paredown.models.text.confined_process import (
    ConfinedProcess,
    Confinement,
    LimitError,
    NotStartedError,
    ProgramError,
)
from paredown.units import MEBI

SOON_S = 15.0


@pytest.fixture
def process() -> Iterator[ConfinedProcess]:
    made = ConfinedProcess(
        Confinement(
            target="fakes.confined_program:make_program",
            max_memory_bytes=256 * MEBI,
            max_reply_bytes=MEBI,
        ),
        b"!",
    )
    yield made
    made.close()


def test_it_answers_in_turn(process: ConfinedProcess) -> None:
    assert [process.ask(b"%d" % i, cpu_s=1) for i in range(5)] == [b"%d!" % i for i in range(5)]
    big = b"x" * (MEBI // 2)
    assert process.ask(big, cpu_s=1) == big + b"!"


@pytest.mark.parametrize(
    ("asked", "error", "problem"),
    [
        (b"spin", LimitError, "more than 0.2 s of processor time"),
        (b"take 1000000000", LimitError, "more than 268.44 MB of memory"),
        (b"take 2000000", LimitError, "2.00 MB of text, more than 1.05 MB"),
        (b"raise", ProgramError, "ValueError: no"),
        (b"exit 3", ProgramError, "ended with code 3"),
        (b"die", LimitError, "ended by SIGKILL"),
    ],
)
def test_whatever_it_does_the_next_request_is_answered(
    process: ConfinedProcess, asked: bytes, error: type[Exception], problem: str
) -> None:
    start_s = time.monotonic()
    for _ in range(2):
        with pytest.raises(error, match=problem):
            process.ask(asked, cpu_s=0.2)
        assert process.ask(b"x", cpu_s=1) == b"x!"
    assert time.monotonic() - start_s < SOON_S


def test_a_request_that_failed_fails_at_once(process: ConfinedProcess) -> None:
    with pytest.raises(LimitError):
        process.ask(b"spin", cpu_s=0.5)
    process.ask(b"x", cpu_s=1)
    child = process._process
    with pytest.raises(LimitError, match=r"more than 0\.5 s"):
        process.ask(b"spin", cpu_s=0.5)
    assert process._process is child
    for i in range(300):
        with pytest.raises(ProgramError):
            process.ask(b"raise %d" % i, cpu_s=0.5)
    assert len(process._failed) == 256


def test_what_takes_long_gives_way_and_its_process_ends() -> None:
    confinement = Confinement(target="fakes.confined_program:make_program", patience_s=0.05)
    process = ConfinedProcess(confinement, b"!")
    assert process.ask(b"x", cpu_s=1) == b"x!"
    child = process._process
    assert child is not None
    assert process.ask(b"wait 0.3", cpu_s=1) == b"10"
    assert child.returncode == -signal.SIGKILL
    assert process.ask(b"wait 0", cpu_s=1) == b"0"
    process.close()


def test_a_program_that_is_not_there_is_an_error() -> None:
    process = ConfinedProcess(Confinement(target="no_such_module:f"), b"")
    with pytest.raises(ProgramError, match="ended with code 1"):
        process.ask(b"x", cpu_s=1)


def test_one_that_was_ended_from_outside_is_started_again(process: ConfinedProcess) -> None:
    process.start()
    assert process.ask(b"x", cpu_s=1) == b"x!"
    assert process._process is not None
    process._process.kill()
    process._process.wait()
    assert process.ask(b"x", cpu_s=1) == b"x!"


def test_it_ends_when_it_is_closed(process: ConfinedProcess) -> None:
    process.ask(b"x", cpu_s=1)
    child = process._process
    assert child is not None
    process.close()
    assert child.returncode == -signal.SIGKILL
    assert process.ask(b"x", cpu_s=1) == b"x!"


def test_one_that_cannot_be_started_is_an_error(
    process: ConfinedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(ProgramError, match="cannot be started"):
        process.ask(b"x", cpu_s=1)
    monkeypatch.undo()
    assert process.ask(b"x", cpu_s=1) == b"x!"


def test_what_ends_from_outside_is_asked_again(process: ConfinedProcess) -> None:
    process.ask(b"x", cpu_s=1)
    child = process._process
    assert child is not None
    for stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        child.send_signal(stop)
    assert process.ask(b"x", cpu_s=1) == b"x!"
    assert process._process is child
    with pytest.raises(LimitError, match="ended by SIGKILL"):
        process.ask(b"die", cpu_s=1)
    assert not process._failed


@pytest.mark.parametrize("executable", ["/no/such/python", "", None])
def test_without_an_interpreter_no_process_is_started(
    executable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    process = ConfinedProcess(Confinement(target="fakes.confined_program:make_program"), b"!")
    with pytest.raises(NotStartedError):
        process.ask(b"x", cpu_s=1)
