"""Chosen tokens are learned by their advantages, given text by its own loss, and places that are no
targets by nothing (D01, D05)."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from drivers.tiny_sampling import load_student, load_teacher, prompts_of, sampling_of, write_llama
from drivers.tiny_training import uneven_rows
from paredown.distill.batch import Batch
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.kl import KL
from paredown.distill.objective import LogitObjective
from paredown.distill.on_policy.policy_objective import PolicyObjective
from paredown.distill.on_policy.sample import sample
from paredown.distill.teacher import DecoderTeacher
from paredown.errors import ConfigError
from paredown.models.decoder.decoder import Decoder
from references import policy_gradient as reference

SAMPLING = sampling_of(prompts_of([5, 1, 3]), 7, stop_ids=frozenset(range(0, 300, 4)))


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_student(write_llama(tmp_path_factory.mktemp("student"), 4)).requires_grad_(True)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> DecoderTeacher:
    return load_teacher(write_llama(tmp_path_factory.mktemp("teacher"), 9))


@pytest.fixture(scope="module")
def chosen(student: Decoder) -> Batch:
    drawn = sample(student, SAMPLING, 0)
    random = torch.Generator().manual_seed(1)
    advantages_BT = torch.randn(drawn.tokens_BT.shape, generator=random)
    return drawn.batch(advantages_BT, torch.rand(drawn.tokens_BT.shape, generator=random))


def found(objective: PolicyObjective, student: Decoder, batch: Batch) -> list[Tensor]:
    loss = objective.total(student, batch, "fp32", recomputes=False)
    return [loss.detach(), *torch.autograd.grad(loss, list(student.parameters()))]


def test_the_loss_of_chosen_tokens_is_the_sum_of_its_formula(
    student: Decoder, teacher: DecoderTeacher, chosen: Batch
) -> None:
    assert chosen.advantages_BT is not None
    assert chosen.weights_BT is not None
    objective = PolicyObjective(kl_weight=0.3, teacher=teacher)
    total = 0.0
    logits_BTV, taught_BTV = (one(chosen.inputs_BT).double() for one in (student, teacher.decoder))
    for row, place in chosen.is_target_BT.nonzero().tolist():
        total += reference.policy_loss(
            logits_BTV[row, place].tolist(),
            taught_BTV[row, place].tolist(),
            int(chosen.targets_BT[row, place]),
            float(chosen.advantages_BT[row, place]),
            float(chosen.weights_BT[row, place]),
            0.3,
        )
    assert float(found(objective, student, chosen)[0]) == pytest.approx(total, rel=1e-4)


def test_a_step_is_the_same_in_any_parts(
    student: Decoder, teacher: DecoderTeacher, chosen: Batch
) -> None:
    objective = PolicyObjective(kl_weight=0.3, teacher=teacher)
    parts = [found(objective, student, part) for part in chosen.split(1)]
    for whole, *others in zip(found(objective, student, chosen), *parts, strict=True):
        torch.testing.assert_close(torch.stack(others).sum(0), whole, rtol=1e-4, atol=1e-4)


def test_places_that_are_no_targets_cannot_be_seen(
    student: Decoder, teacher: DecoderTeacher, chosen: Batch
) -> None:
    """Other tokens, advantages and weights after the end of a row."""
    assert chosen.advantages_BT is not None
    assert chosen.weights_BT is not None
    places_T = torch.arange(chosen.targets_BT.shape[1])
    last_B = torch.where(chosen.is_target_BT, places_T, 0).max(1).values
    is_after_BT = places_T > last_B[:, None]
    assert is_after_BT.any()
    other = replace(
        chosen,
        inputs_BT=torch.where(is_after_BT, 7, chosen.inputs_BT),
        targets_BT=torch.where(is_after_BT, 8, chosen.targets_BT),
        advantages_BT=torch.where(chosen.is_target_BT, chosen.advantages_BT, 9.0),
        weights_BT=torch.where(chosen.is_target_BT, chosen.weights_BT, 9.0),
    )
    objective = PolicyObjective(kl_weight=0.3, teacher=teacher)
    pair = (found(objective, student, batch) for batch in (chosen, other))
    for one, two in zip(*pair, strict=True):
        assert (one == two).all()


@pytest.mark.parametrize("loss", [CrossEntropy(), KL(temperature=2.0)])
def test_given_text_is_learned_by_its_own_loss(
    loss: CrossEntropy | KL, student: Decoder, teacher: DecoderTeacher
) -> None:
    batch = uneven_rows([1, 9, 3], 12).batch(torch.arange(3).numpy())
    objective = PolicyObjective(kl_weight=1.0, teacher=teacher, text_loss=loss)
    plain = LogitObjective(loss=loss, teacher=teacher)
    expected = plain.total(student, batch, "fp32", recomputes=False)
    assert found(objective, student, batch)[0] == expected


@pytest.mark.parametrize("weight", [-0.1, float("inf"), float("nan")])
def test_a_weight_out_of_range_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="divergence from the teacher"):
        PolicyObjective(kl_weight=weight)
