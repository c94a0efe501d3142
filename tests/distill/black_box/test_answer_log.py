"""The log: nothing that was written is lost, whatever ends the process."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.answer_log import AnswerLog, open_answer_log
from paredown.errors import OutputError

ANSWER = Answer(text="Zoë said: 東京 🦊\n", finish_reason="stop", num_tokens=7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl.asked"


def write(path: Path) -> None:
    with open_answer_log(path) as log:
        log.ask("a", 50, 50)
        log.answer("a", ANSWER, 7)
        log.ask("b", 40, 40)
        log.fail("b", "status 500", 0)
        log.ask("b", 40, 40)
        assert log.num_tokens == 47


def test_answers_and_tokens_are_there_again(path: Path) -> None:
    write(path)
    with open_answer_log(path) as log:
        assert log.answers == {"a": ANSWER}
        assert log.num_tokens == 47
        # The one that never ended stays counted when it is asked again.
        log.ask("b", 25, 30)
        assert log.num_tokens == 77
        log.answer("b", ANSWER, 5)
        assert log.num_tokens == 52
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_most_that_a_request_has_cost_beyond_its_bound_is_there_again(path: Path) -> None:
    with open_answer_log(path) as log:
        for key, bound, reserved, used in [("a", 50, 50, 80), ("b", 50, 80, 95), ("c", 50, 95, 60)]:
            log.ask(key, bound, reserved)
            log.answer(key, ANSWER, used)
        log.ask("d", 50, 95)
        assert log.surplus == 45
    with open_answer_log(path) as log:
        assert log.surplus == 45


def test_a_file_cut_anywhere_has_all_lines_before_the_cut(path: Path) -> None:
    write(path)
    whole = path.read_bytes()
    ends = [at + 1 for at, one in enumerate(whole) if one == 10]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        with open_answer_log(path) as log:
            assert len(log.answers) == (size >= ends[1])
            log.ask("c", 1, 1)
        kept = max([end for end in ends if end <= size], default=0)
        assert path.read_bytes().startswith(whole[:kept])
        assert json.loads(path.read_bytes()[kept:]) == {"asking": "c", "bound": 1, "tokens": 1}


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"[]",
        b"{}",
        b'{"asking": "a"}',
        b'{"asking": "a", "tokens": 1}',
        b'{"asking": "a", "bound": "1", "tokens": 1}',
        b'{"asking": "a", "bound": 1, "tokens": "1"}',
        b'{"answered": "a", "tokens": 1}',
        b'{"answered": 3, "tokens": 1, "text": "", "finish_reason": null}',
        b'{"answered": "a", "tokens": 1, "text": 3, "finish_reason": null}',
        b'{"failed": null, "tokens": 1}',
    ],
)
def test_another_file_is_refused_and_left_as_it_is(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n" + line)
    with pytest.raises(OutputError, match="line 1"), open_answer_log(path):
        pass
    assert path.read_bytes() == line + b"\n" + line


@pytest.mark.parametrize(
    "held",
    [
        b"all my notes, on one line",
        b"\x00\x01\x02",
        b'{"prompt": "a"}',
        b'{"asking":"a","bound":1,"tokens":1}',
        b'{"asking": "a", "bound": 1, "tokens": 1}\nand my notes',
    ],
)
def test_another_file_without_an_end_of_line_is_left_as_it_is(path: Path, held: bytes) -> None:
    path.write_bytes(held)
    with pytest.raises(OutputError, match="without an end"), open_answer_log(path):
        pass
    assert path.read_bytes() == held


def test_two_processes_do_not_write_one_log(path: Path) -> None:
    with (
        open_answer_log(path),
        pytest.raises(OutputError, match="another process"),
        open_answer_log(path),
    ):
        pass
    with open_answer_log(path):
        pass


def test_a_link_a_folder_and_what_others_can_write_are_refused(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="cannot be kept"), open_answer_log(path):
        pass
    assert not (tmp_path / "elsewhere").exists()
    path.unlink()
    path.mkdir()
    with pytest.raises(OutputError, match="cannot be kept"), open_answer_log(path):
        pass
    path.rmdir()
    path.touch(0o666)
    path.chmod(0o666)
    with pytest.raises(OutputError, match="not used"), open_answer_log(path):
        pass
    with pytest.raises(OutputError, match="cannot be kept"), open_answer_log(tmp_path / "no" / "x"):
        pass


FULL = """
import resource, sys
from pathlib import Path
from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.answer_log import open_answer_log
from paredown.errors import OutputError

resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
answer = Answer(text="x" * 100, finish_reason="stop", num_tokens=1)
with open_answer_log(Path(sys.argv[1])) as log:
    try:
        for number in range(10):
            log.answer(str(number), answer, 1)
    except OutputError as error:
        print(len(log.answers), error)
"""


def test_a_full_disk_is_told_and_the_file_stays_readable(path: Path) -> None:
    """The system lets the file have 500 bytes; the line that does not fit is taken back."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )
    num, told = done.stdout.split(" ", 1)
    assert "could not be written" in told
    assert "same command" in told
    lines = path.read_bytes().splitlines()
    assert len(lines) == int(num) == 2
    with open_answer_log(path) as log:
        assert len(log.answers) == 2
        log.answer("more", ANSWER, 1)
        assert path.read_bytes().endswith(b"\n")


def test_an_answer_that_does_not_reach_the_disk_is_told_and_taken_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_answer_log(path) as log:
        log.answer("a", ANSWER, 7)
        whole = path.read_bytes()
        monkeypatch.setattr("os.fsync", fail)
        with pytest.raises(OutputError, match="could not be written") as raised:
            log.answer("b", ANSWER, 7)
        assert raised.value.seen == os.strerror(errno.EIO)
        assert path.read_bytes() == whole
        assert (list(log.answers), log.num_tokens) == (["a"], 7)


def test_a_disk_that_takes_a_line_in_many_pieces_has_it_whole(path: Path) -> None:
    class SlowFile(io.FileIO):
        def write(self, data: bytes) -> int:
            return super().write(data[:9])

    with SlowFile(path, "a+b") as file:
        AnswerLog(path, file).answer("a", ANSWER, 7)
    with open_answer_log(path) as log:
        assert log.answers == {"a": ANSWER}
