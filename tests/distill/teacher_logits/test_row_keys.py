"""A row's key is all that a teacher's predictions of it depend on, and no more."""

from dataclasses import replace

import numpy as np

from drivers.tiny_training import random_rows
from paredown.distill.rows import Rows
from paredown.distill.teacher_logits.row_keys import batch_keys, distinct_rows, keys_digest

ROWS = random_rows(3, 8)
TEXTS_NT = np.array([[0, 0, 0, 1, 1, 1, 2, 2]] * 3, np.int32)


def keys(rows: Rows) -> list[bytes]:
    return batch_keys(rows.batch(np.arange(rows.num_rows)))


def changed(array_NT: np.ndarray, column: int) -> np.ndarray:
    found_NT = array_NT.copy()
    found_NT[1, column] = not found_NT[1, column] if found_NT.dtype == bool else 7
    return found_NT


def test_what_matters_makes_another_key() -> None:
    packed = replace(ROWS, texts_NT=TEXTS_NT)
    for rows, other in (
        (ROWS, replace(ROWS, tokens_NT=changed(ROWS.tokens_NT, 0))),
        (ROWS, replace(ROWS, tokens_NT=changed(ROWS.tokens_NT, 6))),
        (ROWS, replace(ROWS, is_target_NT=changed(ROWS.is_target_NT, 7))),
        (packed, replace(packed, texts_NT=changed(TEXTS_NT, 6))),
    ):
        own, theirs = keys(rows), keys(other)
        assert own[0] == theirs[0]
        assert own[1] != theirs[1]
    assert not set(keys(ROWS)) & set(keys(packed))


def test_the_last_token_is_only_predicted() -> None:
    assert keys(ROWS) == keys(replace(ROWS, tokens_NT=changed(ROWS.tokens_NT, 7)))


def test_rows_are_counted_once_in_their_order() -> None:
    again = Rows.from_windows(ROWS.tokens_NT[[2, 0]])
    found = distinct_rows([again, ROWS])
    assert list(found.values()) == [(0, 0), (0, 1), (1, 1)]
    assert keys_digest(found) != keys_digest(reversed(list(found)))
