"""Samples of a teacher teach what its whole distribution does on average; its top tokens do not."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from drivers.tiny_training import uneven_rows
from paredown.distill.batch import Batch
from paredown.distill.losses.kl import KL
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.losses.top_share_kl import TopShareKL
from paredown.distill.sampled_teacher import SampledTeacher
from paredown.errors import ConfigError

RANDOM = torch.Generator().manual_seed(5)
TEACHER = 2 * torch.randn(20, generator=RANDOM, dtype=torch.float64)
LOGITS = 2 * torch.randn(20, generator=RANDOM, dtype=torch.float64)


class SameEverywhere:
    """A teacher that predicts the same at each target."""

    def predict(self, batch: Batch) -> Callable[[slice], Tensor]:
        known_NV = TEACHER.log_softmax(-1).expand(batch.num_targets, -1)
        return lambda rows: known_NV[rows]


def mean_gradient(loss: TokenLoss, teacher_NV: Tensor) -> Tensor:
    logits_V = LOGITS.clone().requires_grad_()
    targets_N = torch.zeros(len(teacher_NV), dtype=torch.int64)
    losses_N = loss.losses(logits_V.expand(len(teacher_NV), -1), targets_N, teacher_NV)
    return torch.autograd.grad(losses_N.mean(), logits_V)[0]


def test_the_gradient_of_samples_is_unbiased_and_that_of_the_top_is_not() -> None:
    batch = uneven_rows([1000] * 20, 1001).batch(np.arange(20))
    sampled = SampledTeacher(teacher=SameEverywhere(), num_draws=8).predict(batch)
    whole_NV = TEACHER.log_softmax(-1)[None]
    expected = mean_gradient(KL(), whole_NV)
    bias = mean_gradient(KL(), sampled(slice(None))) - expected
    # 160,000 draws: the error of each share is at most 0.5 / 400, and four of these are rare.
    assert bias.abs().max() < 5e-3
    for missing_mass in ("zero", "uniform"):
        top = TopShareKL(share=0.2, missing_mass=missing_mass)
        assert (mean_gradient(top, whole_NV) - expected).abs().max() > 2e-2


def test_draws_are_those_of_the_row_in_any_parts() -> None:
    batch = uneven_rows([1, 9, 3, 7], 12).batch(np.arange(4))
    teacher = SampledTeacher(teacher=SameEverywhere(), num_draws=6, seed=2)
    whole_NV = teacher.predict(batch)(slice(None))
    parts = [teacher.predict(part)(slice(None)) for part in batch.split(1)]
    assert (torch.cat(parts) == whole_NV).all()
    assert (teacher.predict(batch)(slice(4, 15)) == whole_NV[4:15]).all()
    torch.testing.assert_close(whole_NV.exp().sum(-1), torch.ones(20).double())
    other = SampledTeacher(teacher=SameEverywhere(), num_draws=6, seed=3)
    assert (other.predict(batch)(slice(None)) != whole_NV).any()


def test_rows_of_other_tokens_have_draws_of_their_own() -> None:
    batch = uneven_rows([9, 9], 12).batch(np.array([0, 1, 0]))
    drawn_NV = SampledTeacher(teacher=SameEverywhere(), num_draws=6).predict(batch)(slice(None))
    one, two, again = drawn_NV.split(9)
    assert (one == again).all()
    assert (one != two).any()


def test_a_batch_without_targets_draws_nothing() -> None:
    batch = uneven_rows([0, 0], 5).batch(np.arange(2))
    sampled = SampledTeacher(teacher=SameEverywhere()).predict(batch)
    assert sampled(slice(None)).shape == (0, 20)


def test_no_draws_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing is drawn"):
        SampledTeacher(teacher=SameEverywhere(), num_draws=0)
