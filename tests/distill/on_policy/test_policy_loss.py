"""The loss of chosen tokens is its formula, and so are its gradients."""

import pytest
import torch

from paredown.distill.on_policy.policy_loss import policy_losses
from references import policy_gradient as reference

RANDOM = torch.Generator().manual_seed(7)
LOGITS = 3 * torch.randn(5, 11, generator=RANDOM, dtype=torch.float64)
TEACHER = 3 * torch.randn(5, 11, generator=RANDOM, dtype=torch.float64)
TARGETS = torch.randint(0, 11, (5,), generator=RANDOM)
ADVANTAGES = torch.randn(5, generator=RANDOM, dtype=torch.float64)
WEIGHTS = torch.rand(5, generator=RANDOM, dtype=torch.float64)


@pytest.mark.parametrize("kl_weight", [0.0, 0.3])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_loss_is_its_formula(kl_weight: float, is_weighted: bool) -> None:
    weights_N = WEIGHTS if is_weighted else None
    teacher_NV = TEACHER.log_softmax(-1)

    def found(logits_NV: torch.Tensor) -> torch.Tensor:
        return policy_losses(logits_NV, TARGETS, ADVANTAGES, weights_N, teacher_NV, kl_weight)

    rows = zip(
        LOGITS.tolist(),
        TEACHER.tolist(),
        TARGETS.tolist(),
        ADVANTAGES.tolist(),
        WEIGHTS.tolist() if is_weighted else [1.0] * 5,
        strict=True,
    )
    expected = [reference.policy_loss(*row, kl_weight) for row in rows]
    torch.testing.assert_close(found(LOGITS), torch.tensor(expected).double(), rtol=0, atol=1e-6)
    assert torch.autograd.gradcheck(found, LOGITS.clone().requires_grad_())


def test_a_better_choice_is_made_more_likely() -> None:
    logits_NV = LOGITS.clone().requires_grad_()
    losses_N = policy_losses(logits_NV, TARGETS, torch.ones(5), None, None, 0.0)
    (gradient_NV,) = torch.autograd.grad(losses_N.sum(), logits_NV)
    chosen_N = gradient_NV.gather(-1, TARGETS[:, None])
    assert (chosen_N < 0).all()
