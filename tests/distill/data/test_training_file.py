"""Files of training data: what is a record, and what is said of everything else."""

import json
import lzma
from pathlib import Path

import pytest

from paredown.distill.data import training_file
from paredown.distill.data.record import (
    Conversation,
    PlainText,
    PromptCompletion,
    Record,
    UnusableError,
    record_digest,
)
from paredown.distill.data.training_file import read_records
from paredown.errors import CheckpointError, ConfigError

USER, ANSWER = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}
GOOD: list[tuple[object, Record]] = [
    ({"text": "One."}, PlainText(text="One.")),
    ({"prompt": "a", "completion": "b"}, PromptCompletion(prompt="a", completion="b")),
    ({"prompt": "", "completion": "b"}, PromptCompletion(prompt="", completion="b")),
    ({"messages": [USER, ANSWER]}, Conversation(messages=(USER, ANSWER))),
    ({"messages": [USER, ANSWER], "text": "x"}, Conversation(messages=(USER, ANSWER))),
]
BAD: list[tuple[bytes, str]] = [
    (b"{", "no JSON"),
    (b"\xff", "no JSON"),
    (b"[" * 100_000, "no JSON"),
    (b"9" * 5000, "no JSON"),
    (b"[1]", "no JSON object"),
    (b"{}", "no text, no prompt with completion, no messages"),
    (b'{"prompt": "a"}', "no text, no prompt with completion, no messages"),
    (b'{"text": 3}', "text is no text"),
    (b'{"text": "  "}', "an empty text"),
    (b'{"completion": "a"}', "prompt is no text"),
    (b'{"prompt": "a", "completion": ""}', "an empty completion"),
    (b'{"messages": "hi"}', "messages are no list of objects"),
    (b'{"messages": [3]}', "messages are no list of objects"),
    (b'{"messages": []}', "no answer of the assistant"),
    (b'{"messages": [{"content": "a"}]}', "a message without a role"),
    (b'{"messages": [{"role": "user"}]}', "a message without a text"),
    (b'{"messages": [{"role": "user", "content": "a"}]}', "no answer of the assistant"),
    (b'{"messages": [{"role": "assistant", "content": "a"}]}', "no answer of the assistant"),
]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_lines_of_json_are_records(tmp_path: Path) -> None:
    lines = "\r\n\n".join(json.dumps(fields) for fields, _ in GOOD)
    for name in ("a.jsonl", "a.ndjson"):
        found = list(read_records(write(tmp_path / name, b"\xef\xbb\xbf" + lines.encode())))
        assert found == [record for _, record in GOOD]
    packed = write(tmp_path / "a.jsonl.xz", lzma.compress(lines.encode()))
    assert list(read_records(packed)) == [record for _, record in GOOD]


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_a_bad_line_is_told_and_the_next_one_read(line: bytes, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", line + b'\n{"text": "good"}')
    bad, good = read_records(path)
    assert isinstance(bad, UnusableError)
    assert str(bad) == reason
    assert good == PlainText(text="good")


def test_a_line_without_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_file, "_MAX_LINE_BYTES", 1 << 20)
    long = b'{"text": "' + b"x" * (3 << 20) + b'"}\n'
    bad, good = read_records(write(tmp_path / "a.jsonl", long + b'{"text": "good"}\n'))
    assert str(bad) == "a line of more than 1 MiB"
    assert good == PlainText(text="good")


@pytest.mark.parametrize("ends", ["\n", " "])
def test_a_text_is_cut_into_stretches_that_are_all_of_it(ends: str, tmp_path: Path) -> None:
    text = "".join(f"Line {number} with a café.{ends}" for number in range(4000))
    for path in (
        write(tmp_path / "a.txt", text.encode()),
        write(tmp_path / "a.txt.xz", lzma.compress(text.encode())),
    ):
        found = list(read_records(path))
        assert len(found) > 5
        assert all(isinstance(one, PlainText) and not one.ends for one in found)
        assert "".join(one.text for one in found if isinstance(one, PlainText)) == text
        if ends == "\n":
            assert all(one.text.endswith(".\n") for one in found if isinstance(one, PlainText))


def test_what_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not text"):
        list(read_records(write(tmp_path / "a.bin", b"abc\xff" * 100)))
    with pytest.raises(ConfigError, match="is not text"):
        list(read_records(write(tmp_path / "half.txt", "café".encode()[:-1])))
    with pytest.raises(CheckpointError, match="cannot be read"):
        list(read_records(tmp_path / "gone.jsonl"))
    with pytest.raises(CheckpointError, match="cannot be read"):
        list(read_records(tmp_path))
    with pytest.raises(CheckpointError, match="cannot be read"):
        list(read_records(write(tmp_path / "a.txt.xz", b"no archive")))


def test_a_digest_is_that_of_the_content() -> None:
    one = Conversation(messages=({"role": "user", "content": "a"},))
    turned = Conversation(messages=({"content": "a", "role": "user"},))
    assert record_digest(one) == record_digest(turned)
    others = [
        PlainText(text="a"),
        PlainText(text="b"),
        PromptCompletion(prompt="a", completion="b"),
        PromptCompletion(prompt="ab", completion=""),
        PromptCompletion(prompt="\ud800", completion="b"),
        one,
    ]
    assert len({record_digest(record) for record in others}) == len(others)
