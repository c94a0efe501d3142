"""Rows: nothing is lost in packing, and texts that share a row do not see each other (D11, D13)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drivers.tiny_training import VOCAB_SIZE, random_rows
from fakes.tiny_models import make_model
from paredown.distill.forward import fuse_attention
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.objective import LogitObjective
from paredown.distill.row_order import RowOrder
from paredown.distill.rows import Rows, Text
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.packed import text_positions

LOSS = LogitObjective(loss=CrossEntropy())


@given(lengths=st.lists(st.integers(0, 30), min_size=1, max_size=12), num_tokens=st.integers(2, 12))
def test_each_token_but_a_texts_first_is_a_target_once(lengths: list[int], num_tokens: int) -> None:
    numbers = iter(range(1, 10_000))
    texts = [[next(numbers) for _ in range(length)] for length in lengths]
    expected = [token for text in texts for token in text[1:]]
    if not expected:
        with pytest.raises(ConfigError, match="no text"):
            Rows.pack([Text(token_ids=text) for text in texts], num_tokens)
        return
    rows = Rows.pack([Text(token_ids=text) for text in texts], num_tokens)
    batch = rows.batch(np.arange(rows.num_rows))
    assert batch.targets().tolist() == expected
    # What a target is predicted from is the token before it in its text.
    assert batch.inputs_BT.flatten()[batch.places()].tolist() == [one - 1 for one in expected]
    assert batch.texts_BT is not None
    for text in text_positions(batch.texts_BT):
        assert text[0] == 0
        assert ((text[1:] == text[:-1] + 1) | (text[1:] == 0)).all()


def test_targets_are_what_a_text_says_and_never_its_padding() -> None:
    """The padding token may be one that ends texts: it is found by length, not by number."""
    end = 2
    texts = [
        Text(token_ids=[5, 6, end], is_target=[False, False, True]),
        Text(token_ids=[5, 6, 7, 8, end]),
    ]
    rows = Rows.pack(texts, 5)
    assert rows.is_target_NT.tolist() == [[False, False, True, False, False], [False, *[True] * 4]]
    batch = rows.batch(np.array([0, 1]))
    assert batch.targets().tolist() == [end, 6, 7, 8, end]


@pytest.mark.parametrize("family", ["llama", "mistral", "opt", "gemma2", "ministral3"])
def test_a_packed_text_is_predicted_as_alone(family: str, tmp_path: Path) -> None:
    make_model(family, torch.float32, 4).save_pretrained(tmp_path / "in")
    decoder = Decoder.from_checkpoint(Checkpoint.open(tmp_path / "in"))
    fuse_attention(decoder)
    rng = np.random.default_rng(2)
    second = rng.integers(0, VOCAB_SIZE, 20).tolist()
    alone = Rows.from_windows(np.array([second])).batch(np.array([0]))
    expected = LOSS.total(decoder, alone, "fp32", recomputes=False)
    for _ in range(2):
        first = rng.integers(0, VOCAB_SIZE, 12).tolist()
        packed = Rows.pack([Text(token_ids=first), Text(token_ids=second)], 40)
        assert packed.num_rows == 1
        packed.is_target_NT[0, :12] = False
        found = LOSS.total(decoder, packed.batch(np.array([0])), "fp32", recomputes=False)
        assert found.item() / 19 == pytest.approx(expected.item() / 19, abs=2e-6)


def test_windows_without_a_prediction_are_refused() -> None:
    for shape in ((0, 8), (3, 1)):
        with pytest.raises(ConfigError, match="no text"):
            Rows.from_windows(np.zeros(shape, np.int64))


def test_a_digest_tells_rows_apart() -> None:
    rows = random_rows(3, 8)
    other = Rows(tokens_NT=rows.tokens_NT, is_target_NT=~rows.is_target_NT)
    assert rows.digest == random_rows(3, 8).digest
    assert len({rows.digest, other.digest, random_rows(3, 8, seed=4).digest}) == 3


@given(first=st.integers(0, 40), count=st.integers(0, 30))
def test_the_order_reads_each_row_once_a_pass_from_any_place(first: int, count: int) -> None:
    order = RowOrder(num_rows=7, seed=5)
    whole = order.rows(0, 77)
    assert order.rows(first, count).tolist() == whole[first : first + count].tolist()
    passes = whole.reshape(11, 7)
    assert (np.sort(passes, axis=1) == np.arange(7)).all()
    assert len({tuple(one) for one in passes.tolist()}) > 9
