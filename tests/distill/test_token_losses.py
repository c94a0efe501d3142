"""Each loss is its formula, one token at a time in float64, and so are its gradients."""

import math

import pytest
import torch

from paredown.distill.cross_entropy import CrossEntropy
from paredown.distill.kl import KL
from paredown.errors import ConfigError
from references.token_losses import cross_entropy, forward_kl

RANDOM = torch.Generator().manual_seed(7)
LOGITS = 3 * torch.randn(5, 11, generator=RANDOM, dtype=torch.float64)
TEACHER = 3 * torch.randn(5, 11, generator=RANDOM, dtype=torch.float64)
TARGETS = torch.randint(0, 11, (5,), generator=RANDOM)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kl_is_its_formula(temperature: float, dtype: torch.dtype) -> None:
    teacher_NV = TEACHER.to(dtype).log_softmax(-1)
    found = KL(temperature=temperature).losses(LOGITS.to(dtype), TARGETS, teacher_NV)
    rows = zip(LOGITS.tolist(), TEACHER.tolist(), strict=True)
    expected = [forward_kl(own, taught, temperature) for own, taught in rows]
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), rtol=0, atol=5e-6)


def test_cross_entropy_is_its_formula() -> None:
    found = CrossEntropy().losses(LOGITS, TARGETS, None)
    rows = zip(LOGITS.tolist(), TARGETS.tolist(), strict=True)
    expected = torch.tensor([cross_entropy(own, target) for own, target in rows])
    torch.testing.assert_close(found, expected.double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("loss", [KL(), KL(temperature=2.0), CrossEntropy()])
def test_gradients_are_those_of_the_formula(loss: KL | CrossEntropy) -> None:
    teacher_NV = TEACHER.log_softmax(-1)
    assert torch.autograd.gradcheck(
        lambda logits_NV: loss.losses(logits_NV, TARGETS, teacher_NV),
        LOGITS.clone().requires_grad_(),
    )


def test_a_student_like_its_teacher_has_nothing_to_learn() -> None:
    logits_NV = LOGITS.clone().requires_grad_()
    loss = KL(temperature=2.0).losses(logits_NV, TARGETS, LOGITS.log_softmax(-1)).sum()
    (gradient,) = torch.autograd.grad(loss, logits_NV)
    assert abs(loss.item()) < 1e-12
    assert gradient.abs().max() < 1e-12


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_a_token_that_the_teacher_excludes_adds_nothing(temperature: float) -> None:
    taught = TEACHER.clone()
    taught[:, 3] = -math.inf
    logits_NV = LOGITS.clone().requires_grad_()
    losses = KL(temperature=temperature).losses(logits_NV, TARGETS, taught.log_softmax(-1))
    (gradient,) = torch.autograd.grad(losses.sum(), logits_NV)
    # Without the token, the student's distribution still has its probability.
    rows = zip(LOGITS.tolist(), taught.clamp(min=-1e3).tolist(), strict=True)
    expected = [forward_kl(own, other, temperature) for own, other in rows]
    torch.testing.assert_close(losses.detach(), torch.tensor(expected).double())
    assert gradient.isfinite().all()


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_a_temperature_that_is_no_positive_number_is_refused(temperature: float) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        KL(temperature=temperature)
