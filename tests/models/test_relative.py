"""Buckets of relative positions are those of MPNet and T5 in Transformers, at every distance."""

import pytest
import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.t5.modeling_t5 import T5Attention

from paredown.models.decoder.relative import relative_buckets, relative_scores
from paredown.spec.attention import RelativePositions

POSITIONS = torch.arange(700)


@pytest.mark.parametrize("num_buckets", [8, 32])
@pytest.mark.parametrize("max_distance", [20, 128])
@pytest.mark.parametrize("is_causal", [False, True])
def test_buckets_equal_t5(num_buckets: int, max_distance: int, is_causal: bool) -> None:
    relative = RelativePositions(num_buckets=num_buckets, max_distance=max_distance)
    theirs = T5Attention._relative_position_bucket(
        POSITIONS[None] - POSITIONS[:, None],
        bidirectional=not is_causal,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )
    assert torch.equal(
        relative_buckets(relative, POSITIONS, POSITIONS, is_causal=is_causal), theirs
    )


def test_buckets_equal_mpnet() -> None:
    relative = RelativePositions(num_buckets=32, max_distance=128)
    theirs = MPNetEncoder.relative_position_bucket(POSITIONS[None] - POSITIONS[:, None])
    assert torch.equal(relative_buckets(relative, POSITIONS, POSITIONS, is_causal=False), theirs)


def test_scores_are_the_table_rows_of_the_buckets() -> None:
    relative = RelativePositions(num_buckets=8, max_distance=20)
    biases_RH = torch.arange(24.0).view(8, 3)
    scores_HTT = relative_scores(relative, biases_RH, 5, is_causal=False)
    buckets_TT = relative_buckets(relative, POSITIONS[:5], POSITIONS[:5], is_causal=False)
    for head in range(3):
        assert torch.equal(scores_HTT[head], biases_RH[buckets_TT, head])
