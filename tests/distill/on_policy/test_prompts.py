"""Prompts of training rows end where the first target is."""

import numpy as np
import pytest

from paredown.distill.on_policy.prompts import Prompts
from paredown.distill.rows import Rows, Text
from paredown.errors import ConfigError


def test_a_prompt_ends_where_the_answer_begins() -> None:
    texts = [
        Text(token_ids=[1, 2, 3, 4], is_target=[False, False, True, True]),
        Text(token_ids=[5, 6, 7, 8, 9], is_target=[False, False, False, False, True]),
        Text(token_ids=[10, 11, 12, 13, 14]),
    ]
    rows = Rows.pack(texts, 10)
    prompts = Prompts.of_rows(rows, 3)
    assert prompts.token_ids == ((1, 2), (6, 7, 8), (10, 11, 12))
    assert (prompts.num_prompts, prompts.num_tokens) == (3, 3)


def test_plain_windows_give_their_beginnings() -> None:
    rows = Rows.from_windows(np.arange(12).reshape(2, 6))
    assert Prompts.of_rows(rows, 4).token_ids == ((0, 1, 2, 3), (6, 7, 8, 9))


def test_other_prompts_have_another_digest() -> None:
    digests = {Prompts(token_ids=ids).digest for ids in (((1, 2),), ((1,), (2,)), ((1, 3),))}
    assert len(digests) == 3


@pytest.mark.parametrize("ids", [(), ((),), ((1,), ())])
def test_prompts_without_tokens_are_refused(ids: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ConfigError, match="nothing to go on from"):
        Prompts(token_ids=ids)
