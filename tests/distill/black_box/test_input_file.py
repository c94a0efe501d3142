"""Tests what a line of the input may hold, and why others are left out."""

import json
from pathlib import Path

import pytest

from paredown.distill.black_box.input_file import Topic, read_prompts, read_topics
from paredown.errors import CheckpointError, ConfigError


def write(path: Path, *lines: object) -> Path:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    path.write_text("\n".join(texts))
    return path


def test_prompts_come_in_every_form(tmp_path: Path) -> None:
    user, said = {"role": "user", "content": "e"}, {"role": "assistant", "content": "f"}
    found, dropped = read_prompts(
        write(
            tmp_path / "in.jsonl",
            {"prompt": "a"},
            {"prompt": "b", "completion": "c"},
            {"prompt": "d", "answers": ["x", "y"]},
            {"messages": [{"role": "system", "content": "s"}, user, said]},
            {"messages": [user, said, user]},
            {"instruction": "g", "input": "h", "output": "i"},
            {"instruction": "j", "instances": [{"input": "", "output": "k"}]},
            "",
        )
    )
    assert [one.text for one in found] == ["a", "b", "d", "e", "e", "g\n\nh", "j"]
    assert [one.answers for one in found] == [
        (),
        ("c",),
        ("x", "y"),
        ("f",),
        (),
        ("i",),
        ("k",),
    ]
    assert [len(one.messages) for one in found] == [1, 1, 1, 2, 3, 1, 1]
    assert not dropped


def test_lines_of_a_text_are_prompts_and_topics(tmp_path: Path) -> None:
    path = write(tmp_path / "in.txt", "\ufeffWhat is it?", "", "  Why, Zoë? ", "Why,  Zoë?")
    found, dropped = read_prompts(path)
    assert [one.text for one in found] == ["What is it?", "Why, Zoë?"]
    assert dropped == {"came before": 1}
    topics, _ = read_topics(path)
    assert topics[0] == Topic(name="What is it?")


def test_topics_have_entities(tmp_path: Path) -> None:
    path = write(
        tmp_path / "in.jsonl",
        {"topic": "physics", "entities": ["Newton", "Newton", "light"]},
        {"topic": "music"},
        {"topic": "art", "entities": "Dürer"},
        {"topic": "physics"},
    )
    found, dropped = read_topics(path)
    assert found == [
        Topic(name="physics", entities=("Newton", "light")),
        Topic(name="music"),
    ]
    assert dropped == {"entities are no list of texts": 1, "came before": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ({}, "no prompt, no messages, no instruction"),
        ({"prompt": " "}, "prompt is no text"),
        ({"prompt": 3}, "prompt is no text"),
        (r'{"prompt": "\ud800"}', "prompt is no text"),
        ({"prompt": "a", "completion": None}, "completion is no text"),
        ({"prompt": "a", "answers": "b"}, "answers are no list of texts"),
        ({"messages": 3}, "messages are no list of objects"),
        ({"messages": []}, "messages that do not end with the user"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "without a known role"),
        ({"instruction": "a", "instances": [3]}, "instances are no list of objects"),
    ],
)
def test_what_cannot_be_asked_is_left_out_and_counted(line, reason, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", line, {"prompt": "good"})
    found, dropped = read_prompts(path)
    assert [one.text for one in found] == ["good"]
    assert dropped.total() == 1
    assert reason in next(iter(dropped))
    with pytest.raises(ConfigError, match="nothing to ask"):
        read_prompts(write(tmp_path / "in.jsonl", line))


def test_answers_that_are_missing_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", {"prompt": "a", "answers": ["b"]})
    assert len(read_prompts(path, num_answers=1)[0]) == 1
    with pytest.raises(ConfigError, match="less than 2 answers"):
        read_prompts(path, num_answers=2)


def test_prompts_with_other_answers_are_others_where_the_answers_count(tmp_path: Path) -> None:
    lines = [{"prompt": "a", "answers": list(answers)} for answers in ("xyz", "xyw", "xzy", "yxz")]
    path = write(tmp_path / "in.jsonl", *lines)
    for num_answers, num in ((0, 1), (1, 2), (2, 3), (3, 4)):
        found, dropped = read_prompts(path, num_answers)
        assert (len(found), dropped["came before"]) == (num, 4 - num)
        assert found[0].answers == ("x", "y", "z")


def test_files_that_are_not_there_or_no_files_are_told(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.txt", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_prompts(path)
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ConfigError, match="no UTF-8"):
        read_prompts(tmp_path / "bytes.txt")
