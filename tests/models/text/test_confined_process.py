"""A process that can be stopped: by processor time, by memory, by what it answers."""

import signal
import time
from collections.abc import Iterator

import pytest

from paredown.models.text.confined_process import (
    ConfinedProcess,
    Confinement,
    LimitError,
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
