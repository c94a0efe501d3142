"""Each loss is its formula, one token at a time in float64, and so are its gradients."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.jsd import JSD
from paredown.distill.losses.kl import KL
from paredown.distill.losses.reverse_kl import ReverseKL
from paredown.distill.losses.slim import SLIM
from paredown.distill.losses.soft_label import SoftLabel
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.losses.top_share_kl import TopShareKL
from paredown.errors import ConfigError
from references import token_losses as reference

RANDOM = torch.Generator().manual_seed(7)
LOGITS = 3 * torch.randn(5, 11, generator=RANDOM, dtype=torch.float64)
TEACHER = 3 * torch.randn(5, 11, generator=RANDOM, dtype=torch.float64)
TARGETS = torch.randint(0, 11, (5,), generator=RANDOM)

# The loss of one target from the logits of both models and the text's token.
Formula = Callable[[Sequence[float], Sequence[float], int], float]
# 0.2 of 11 tokens are 3 of them.
CASES: list[tuple[TokenLoss, Formula]] = [
    (CrossEntropy(), lambda own, taught, y: reference.cross_entropy(own, y)),
    (KL(), lambda own, taught, y: reference.forward_kl(own, taught, 1.0)),
    (KL(temperature=2.0), lambda own, taught, y: reference.forward_kl(own, taught, 2.0)),
    (KL(temperature=0.5), lambda own, taught, y: reference.forward_kl(own, taught, 0.5)),
    (
        SoftLabel(temperature=2.0, label_weight=0.3),
        lambda own, taught, y: reference.soft_label(own, taught, y, 2.0, 0.3),
    ),
    (ReverseKL(), lambda own, taught, y: reference.reverse_kl(own, taught, 1.0)),
    (ReverseKL(temperature=3.0), lambda own, taught, y: reference.reverse_kl(own, taught, 3.0)),
    (JSD(), lambda own, taught, y: reference.jsd(own, taught, 0.5, 1.0)),
    (JSD(beta=0.1, temperature=2.0), lambda own, taught, y: reference.jsd(own, taught, 0.1, 2.0)),
    (JSD(beta=0.0), lambda own, taught, y: reference.forward_kl(own, taught, 1.0)),
    (
        JSD(beta=1.0, temperature=2.0),
        lambda own, taught, y: reference.reverse_kl(own, taught, 2.0),
    ),
    (
        TopShareKL(share=0.2),
        lambda own, taught, y: reference.top_share_kl(own, taught, 3, "zero", 1.0),
    ),
    (
        TopShareKL(share=0.2, missing_mass="uniform", temperature=2.0),
        lambda own, taught, y: reference.top_share_kl(own, taught, 3, "uniform", 2.0),
    ),
    (SLIM(share=0.2), lambda own, taught, y: reference.slim(own, taught, y, 3, 1.0, 1.0)),
    (
        SLIM(share=0.2, alpha=0.4, temperature=2.0),
        lambda own, taught, y: reference.slim(own, taught, y, 3, 0.4, 2.0),
    ),
]
LOSSES = [loss for loss, _ in CASES]
# Losses of two whole distributions, which are 0 where these are the same.
DIVERGENCES = [
    KL(temperature=2.0),
    ReverseKL(temperature=2.0),
    JSD(beta=0.3, temperature=2.0),
    TopShareKL(share=1.0, temperature=2.0),
]


def taught(loss: TokenLoss, logits_NV: Tensor, teacher_NV: Tensor) -> Tensor | None:
    return teacher_NV.log_softmax(-1) if loss.needs_teacher else None


@pytest.mark.parametrize(("loss", "formula"), CASES, ids=[repr(loss) for loss in LOSSES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loss_is_its_formula(loss: TokenLoss, formula: Formula, dtype: torch.dtype) -> None:
    logits_NV, teacher_NV = LOGITS.to(dtype), TEACHER.to(dtype)
    found = loss.losses(logits_NV, TARGETS, taught(loss, logits_NV, teacher_NV))
    rows = zip(LOGITS.tolist(), TEACHER.tolist(), TARGETS.tolist(), strict=True)
    expected = torch.tensor([formula(*row) for row in rows]).double()
    bound = 1e-6 if dtype == torch.float64 else 2e-5
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=bound)


def numbers(loss: TokenLoss, logits_NV: Tensor) -> Tensor:
    """The loss as its gradient sees it: the weight of SLIM is a number and does not move."""
    if not isinstance(loss, SLIM):
        return loss.losses(logits_NV, TARGETS, taught(loss, logits_NV, TEACHER))
    label_N, sparse_N = (
        one.losses(logits_NV, TARGETS, TEACHER.log_softmax(-1))
        for one in (CrossEntropy(), TopShareKL(share=loss.share, temperature=loss.temperature))
    )
    fixed = [
        reference.probabilities(own)[y] / reference.probabilities(other)[y]
        for own, other, y in zip(LOGITS.tolist(), TEACHER.tolist(), TARGETS.tolist(), strict=True)
    ]
    return label_N + loss.alpha * (1 - torch.tensor(fixed).double().neg().exp()) * sparse_N


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradients_are_those_of_the_formula(loss: TokenLoss) -> None:
    logits_NV = LOGITS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda given_NV: numbers(loss, given_NV), logits_NV)
    one = loss.losses(logits_NV, TARGETS, taught(loss, logits_NV, TEACHER)).sum()
    pair = (
        torch.autograd.grad(each, logits_NV)[0] for each in (one, numbers(loss, logits_NV).sum())
    )
    torch.testing.assert_close(*pair, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", DIVERGENCES, ids=repr)
def test_a_student_like_its_teacher_has_nothing_to_learn(loss: TokenLoss) -> None:
    logits_NV = LOGITS.clone().requires_grad_()
    total = loss.losses(logits_NV, TARGETS, LOGITS.log_softmax(-1)).sum()
    (gradient,) = torch.autograd.grad(total, logits_NV)
    assert abs(total.item()) < 1e-12
    assert gradient.abs().max() < 1e-12


@pytest.mark.parametrize("kind", [KL, ReverseKL, JSD])
def test_the_factor_keeps_the_gradient_at_high_temperatures(kind: type[KL]) -> None:
    """Far above all logits the gradient no longer depends on the temperature."""

    def gradient(temperature: float) -> Tensor:
        logits_NV = LOGITS.clone().requires_grad_()
        loss = kind(temperature=temperature).losses(logits_NV, TARGETS, TEACHER.log_softmax(-1))
        return torch.autograd.grad(loss.sum(), logits_NV)[0]

    torch.testing.assert_close(gradient(1e4), gradient(2e4), rtol=0, atol=2e-3)
    assert gradient(1e4).abs().max() > 0.1


@pytest.mark.parametrize("share", [1e-6, 1 - 1e-6])
def test_the_ends_of_the_mixture_are_both_divergences(share: float) -> None:
    teacher_NV = TEACHER.log_softmax(-1)
    found_N = JSD(beta=share).losses(LOGITS, TARGETS, teacher_NV) / min(share, 1 - share)
    end = KL() if share < 0.5 else ReverseKL()
    torch.testing.assert_close(found_N, end.losses(LOGITS, TARGETS, teacher_NV), rtol=1e-2, atol=0)


EXCLUDING = [loss for loss in LOSSES if loss.needs_teacher and not loss.needs_positive]


@pytest.mark.parametrize("loss", [*EXCLUDING, JSD(), JSD(beta=0.9, temperature=2.0)], ids=repr)
def test_a_token_that_the_teacher_excludes_adds_nothing(loss: TokenLoss) -> None:
    excluding, nearly = TEACHER.clone(), TEACHER.clone()
    excluding[:, 3], nearly[:, 3] = -math.inf, -1e3
    logits_NV = LOGITS.clone().requires_grad_()
    losses_N = loss.losses(logits_NV, TARGETS, excluding.log_softmax(-1))
    (gradient,) = torch.autograd.grad(losses_N.sum(), logits_NV)
    expected = loss.losses(LOGITS, TARGETS, nearly.log_softmax(-1))
    torch.testing.assert_close(losses_N.detach(), expected)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("loss", [ReverseKL(), JSD(beta=1.0)], ids=repr)
def test_a_loss_that_says_so_is_infinite_there(loss: TokenLoss) -> None:
    excluding = TEACHER.clone()
    excluding[:, 3] = -math.inf
    assert loss.needs_positive
    assert loss.losses(LOGITS, TARGETS, excluding.log_softmax(-1)).isinf().all()


def test_slim_lets_the_teacher_speak_once_the_student_knows_the_label() -> None:
    """A student that gives the label nothing learns from the label alone, and one that is far surer
    than its teacher learns from both in full."""
    teacher_NV, targets_N = TEACHER.log_softmax(-1), TARGETS
    places = torch.nn.functional.one_hot(targets_N, 11).double()

    def share(change: float) -> Tensor:
        logits_NV = LOGITS + change * places
        parts = [
            one.losses(logits_NV, targets_N, teacher_NV)
            for one in (SLIM(), CrossEntropy(), TopShareKL())
        ]
        return (parts[0] - parts[1]) / parts[2]

    assert share(-60.0).abs().max() < 1e-9
    assert share(60.0).min() > 0.5
    assert (share(2.0) > share(0.0)).all()


BAD = [0.0, -1.0, math.inf, math.nan]


@pytest.mark.parametrize("temperature", BAD)
@pytest.mark.parametrize("kind", [KL, ReverseKL, JSD, SoftLabel, TopShareKL, SLIM])
def test_a_temperature_that_is_no_positive_number_is_refused(
    kind: type[KL], temperature: float
) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        kind(temperature=temperature)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_numbers_out_of_range_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="mixture"):
        JSD(beta=value)
    with pytest.raises(ConfigError, match="share of the teacher's tokens"):
        TopShareKL(share=value)
    with pytest.raises(ConfigError, match="share of the teacher's tokens"):
        SLIM(share=value)
    with pytest.raises(ConfigError, match="the text's own tokens"):
        SoftLabel(label_weight=-value if value > 1 else value)
    with pytest.raises(ConfigError, match="the teacher's distribution"):
        SLIM(alpha=-value if value > 1 else value)
