"""The first steps learn from texts, as many as were asked for."""

import numpy as np
import pytest

from drivers.tiny_training import random_rows
from paredown.distill.on_policy.staged_batches import StagedBatches, warmed
from paredown.distill.row_batches import RowBatches
from paredown.errors import ConfigError

TEXT = RowBatches(rows=random_rows(4, 8), num_rows=2, seed=0)
THEN = RowBatches(rows=random_rows(4, 10, seed=5), num_rows=4, seed=1)


@pytest.mark.parametrize(("share", "expected"), [(0.25, 2), (1.0, 10), (0.04, 0)])
def test_a_share_of_the_steps_comes_first(share: float, expected: int) -> None:
    found = warmed(TEXT, THEN, share, 10 * 40 + 39)
    assert found == StagedBatches(first=TEXT, num_first_steps=expected, then=THEN)


def test_what_follows_counts_its_own_steps() -> None:
    found = StagedBatches(first=TEXT, num_first_steps=2, then=THEN)
    student = None
    for step, (source, own) in enumerate([(TEXT, 0), (TEXT, 1), (THEN, 0), (THEN, 1)]):
        batch = found.batch(step, student)  # type: ignore[arg-type]
        expected = source.batch(own, student)  # type: ignore[arg-type]
        assert np.array_equal(batch.inputs_BT, expected.inputs_BT)


def test_minutes_leave_the_number_of_steps_open() -> None:
    with pytest.raises(ConfigError, match="--warm-share"):
        warmed(TEXT, THEN, 0.5, None)
