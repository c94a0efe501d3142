"""The share of sampled steps is what was asked for, and a step's choice depends on its number."""

import pytest

from drivers.tiny_sampling import load_student, write_llama
from drivers.tiny_training import config, random_rows
from paredown.distill.on_policy.mixed_batches import MixedBatches
from paredown.distill.on_policy.staged_batches import StagedBatches
from paredown.distill.row_batches import RowBatches
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder

SHORT = RowBatches.of(random_rows(4, 8), config(8, batch_tokens=16))
LONG = RowBatches.of(random_rows(4, 12), config(8, batch_tokens=12))


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_student(write_llama(tmp_path_factory.mktemp("student"), 4))


def lengths(source: MixedBatches | StagedBatches, student: Decoder, num_steps: int) -> list[int]:
    return [source.batch(step, student).inputs_BT.shape[1] + 1 for step in range(num_steps)]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_sampled_steps_is_as_asked(share: float, student: Decoder) -> None:
    source = MixedBatches(sampled=LONG, given=SHORT, sampled_share=share)
    found = lengths(source, student, 400)
    assert found.count(12) / 400 == pytest.approx(share, abs=0.08 if 0 < share < 1 else 0)
    assert lengths(source, student, 50) == found[:50]


def test_a_step_is_counted_as_the_larger(student: Decoder) -> None:
    mixed = MixedBatches(sampled=LONG, given=SHORT)
    staged = StagedBatches(first=SHORT, num_first_steps=3, then=LONG)
    for source in (mixed, staged):
        assert source.step_tokens == 16
        assert source.num_rows == 1  # of 2 and of 1


def test_the_second_source_begins_at_its_first_step(student: Decoder) -> None:
    staged = StagedBatches(first=SHORT, num_first_steps=3, then=LONG)
    assert lengths(staged, student, 5) == [8, 8, 8, 12, 12]
    pair = (staged.batch(3, student), LONG.batch(0, student))
    assert (pair[0].inputs_BT == pair[1].inputs_BT).all()


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="share of steps"):
        MixedBatches(sampled=LONG, given=SHORT, sampled_share=share)
