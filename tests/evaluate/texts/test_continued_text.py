"""Texts of encoder-decoders: each stretch is read by one side, and goes on on the other."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.texts.continued_text import Cutter, choose_continued_text
from paredown.models.text.whole_text import WholeText
from paredown.spec.model import Embedding, ModelSpec

END, START, VOCAB_SIZE = 1, 0, 300


class Bytes:
    """Each byte is a token; a text ends with END."""

    bos_token_id = None
    prompt_prefix = ()
    prompt_suffix = (END,)
    pair_form = None
    decoder_start_token_id: int | None = START

    def encode(self, text: str) -> list[int]:
        return [2 + byte for byte in text.encode()]

    def decode(self, ids: list[int]) -> str:
        return bytes(one - 2 for one in ids if one >= 2).decode(errors="ignore")


def spec(max_positions: int = 512) -> ModelSpec:
    encoder = ModelSpec(
        family="t5",
        vocab_size=VOCAB_SIZE,
        hidden_size=8,
        max_positions=max_positions,
        embedding=Embedding(),
        layers=(),
        final_norm=None,
        output=None,
    )
    return ModelSpec(**{**vars(encoder), "encoder": encoder})


def never() -> None:
    raise AssertionError("nothing has to be sampled")


@given(
    ids=st.lists(st.integers(2, 299), max_size=200),
    room=st.integers(1, 30),
    num_answer_tokens=st.integers(1, 30),
    num_tokens=st.integers(1, 150),
)
def test_every_token_is_read_or_predicted_once_in_order(
    ids: list[int], room: int, num_answer_tokens: int, num_tokens: int
) -> None:
    whole = WholeText(tokenizer=Bytes(), max_tokens=room + 1)
    cutter = Cutter(whole=whole, num_answer_tokens=num_answer_tokens, start_token_id=START)
    found = list(cutter.windows(ids, num_tokens))
    parts = [one.encoder_ids[:-1] + one.targets for one in found]
    joined = [token for part in parts for token in part]
    assert joined == ids[: len(joined)]
    assert sum(len(one.targets) for one in found) <= num_tokens
    assert len(found) > 0 or len(ids) < 2
    for one in found:
        assert one.encoder_ids[-1] == END
        assert 1 < len(one.encoder_ids) <= room + 1
        assert one.inputs == [START, *one.targets[:-1]]
        assert 0 < len(one.targets) <= num_answer_tokens


def test_a_file_is_cut_and_told_of(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("It is so. " * 100)
    text = choose_continued_text(path, Bytes(), 300, never, spec())
    assert text.num_tokens == text.num_bytes == 300
    assert [len(one.targets) for one in text.windows] == [256, 44]
    assert "300 tokens (300 bytes) of text.txt" in text.protocol
    short = choose_continued_text(path, Bytes(), 300, never, spec(max_positions=20))
    assert max(len(one.encoder_ids) for one in short.windows) == 20
    assert max(len(one.inputs) for one in short.windows) == 20


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("I")
    with pytest.raises(ConfigError, match="no text to measure"):
        choose_continued_text(path, Bytes(), 300, never, spec())
    with pytest.raises(ConfigError, match="nothing to measure on"):
        choose_continued_text(path, Bytes(), 0, never, spec())
    with pytest.raises(CheckpointError, match="cannot be read"):
        choose_continued_text(tmp_path / "other.txt", Bytes(), 300, never, spec())
    startless = Bytes()
    startless.decoder_start_token_id = None
    with pytest.raises(CheckpointError, match="with which token the decoder begins"):
        choose_continued_text(path, startless, 300, never, spec())
