"""Tokens and their bytes in answers with log-probabilities, whole and in pieces."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.small_tokenizers import byte_level, sentence_piece, write_folder
from paredown.engine.request_output import RequestOutput
from paredown.executors.sampler import Logprobs, TokenLogprob
from paredown.models.text.tokenizer import Tokenizer
from paredown.serve.answers.chat_format import ChatFormat
from paredown.serve.answers.completion_format import CompletionFormat
from paredown.serve.answers.logprobs import LogprobRows
from paredown.serve.answers.piece import Piece
from paredown.serve.answers.turn_reader import PlainReader
from paredown.serve.endpoints.completions import _encode
from paredown.serve.intake.side_thread import Wanted


def rows(ids: list[int]) -> list[Logprobs]:
    """Each with itself and <s> as the likeliest."""
    return [
        Logprobs(
            chosen=TokenLogprob(one, -0.5), top=[TokenLogprob(one, -0.5), TokenLogprob(1, -9e9)]
        )
        for one in ids
    ]


def pieces(tokenizer: Tokenizer, prompt: list[int], parts: list[list[int]]) -> list[Piece]:
    """One for each part of an answer's tokens."""
    known, made = LogprobRows(tokenizer, prompt), []
    for part in parts:
        piece = Piece(0)
        piece.add(
            RequestOutput(0, text="", token_ids=part, logprobs=rows(part)), known, PlainReader()
        )
        made.append(piece)
    return made


@pytest.mark.parametrize("is_whole", [True, False])
def test_bytes_of_a_character(is_whole: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level()))
    ids = tokenizer.encode("😀!")
    parts = [ids] if is_whole else [[one] for one in ids]
    made = pieces(tokenizer, [66], parts)
    choices = [next(ChatFormat().chunk_choices(one)) for one in made]
    content = [row for one in choices for row in one["logprobs"]["content"]]
    assert [row["bytes"] for row in content] == [[240], [159], [152], [128], [33]]
    assert [row["token"] for row in content] == ["\ufffd"] * 4 + ["!"]
    assert [row["top_logprobs"][0]["bytes"] for row in content] == [row["bytes"] for row in content]
    assert all(row["top_logprobs"][1]["logprob"] == -9999.0 for row in content)
    found = [next(CompletionFormat().chunk_choices(one))["logprobs"] for one in made]
    assert [one for part in found for one in part["text_offset"]] == [0, 0, 0, 0, 1]
    names = ["bytes:\\xf0", "bytes:\\x9f", "bytes:\\x98", "bytes:\\x80", "!"]
    assert [one for part in found for one in part["tokens"]] == names
    assert [list(one) for part in found for one in part["top_logprobs"]] == [
        [name, ""] for name in names
    ]


@pytest.mark.parametrize("is_whole", [True, False])
def test_spaces_of_words(is_whole: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, sentence_piece()))
    parts = [[7, 6, 7]] if is_whole else [[7], [6], [7]]
    found = [
        next(CompletionFormat().chunk_choices(one))["logprobs"]
        for one in pieces(tokenizer, [7], parts)
    ]
    assert [one for part in found for one in part["tokens"]] == [" to", "to", " to"]
    assert [one for part in found for one in part["text_offset"]] == [0, 3, 5]


def test_bos_twice_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = Tokenizer.open(write_folder(tmp_path, byte_level(bos=True)))
    worker = SimpleNamespace(max_prompt_tokens=100, check_prompt=lambda num: None)
    state = SimpleNamespace(tokenizer=tokenizer, worker=worker)
    assert _encode(state, ["a", [0, 0, 66]], Wanted()) == [[0, 66], [0, 0, 66]]
    assert not caplog.records
    assert _encode(state, ["<s>a"], Wanted()) == [[0, 0, 66]]
    assert "twice" in caplog.text
