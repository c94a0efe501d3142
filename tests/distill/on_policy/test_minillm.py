"""The expected gradient of MiniLLM's loss is that of the divergence of whole texts, and its parts
are their formulas."""

import itertools

import pytest
import torch
from torch import Tensor

from drivers.tiny_sampling import load_student, load_teacher, prompts_of, sampling_of, write_llama
from paredown.distill.on_policy.minillm import (
    MiniLLMBatches,
    importance_weights,
    later_rewards,
    minillm_objective,
)
from paredown.distill.on_policy.own_divergence import own_divergence
from paredown.distill.on_policy.policy_loss import policy_losses
from paredown.distill.on_policy.sample import sample
from paredown.distill.on_policy.samples import Samples
from paredown.errors import ConfigError
from references import policy_gradient as reference

TOKENS, LENGTH = 3, 3
RANDOM = torch.Generator().manual_seed(11)
# A table of logits for each text so far.
CONTEXTS = [
    text for length in range(LENGTH) for text in itertools.product(range(TOKENS), repeat=length)
]
OWN = torch.randn(len(CONTEXTS), TOKENS, generator=RANDOM, dtype=torch.float64)
TAUGHT = torch.randn(len(CONTEXTS), TOKENS, generator=RANDOM, dtype=torch.float64)


def contexts_of(text: tuple[int, ...]) -> list[int]:
    return [CONTEXTS.index(text[:place]) for place in range(LENGTH)]


def drawn(text: tuple[int, ...], table_CV: Tensor) -> Samples:
    """The text as an answer to a prompt of one token, followed by a place of padding."""
    rows, tokens = contexts_of(text), torch.tensor(text)

    def placed(logits_CV: Tensor) -> Tensor:
        chosen_T = logits_CV.log_softmax(-1)[rows, tokens].detach()
        return torch.cat([torch.zeros(1), chosen_T, torch.zeros(1)])[None]

    return Samples(
        tokens_BT=torch.tensor([[0, *text, 0]]),
        prompt_lengths_B=torch.tensor([1]),
        lengths_B=torch.tensor([1 + LENGTH]),
        log_q_BT=placed(table_CV),
        log_p_BT=placed(TAUGHT),
    )


@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_the_expected_gradient_is_that_of_whole_texts(baseline: float) -> None:
    """All 27 texts, each with its probability, and without length normalization."""
    table_CV = OWN.clone().requires_grad_()
    log_q_CV, log_p_CV = table_CV.log_softmax(-1), TAUGHT.log_softmax(-1)
    divergence, expected = torch.zeros(()).double(), torch.zeros_like(OWN)
    for text in itertools.product(range(TOKENS), repeat=LENGTH):
        rows, tokens = contexts_of(text), torch.tensor(text)
        log_q, log_p = log_q_CV[rows, tokens].sum(), log_p_CV[rows, tokens].sum()
        divergence = divergence + log_q.exp() * (log_q - log_p)
        later_BT, _ = later_rewards(drawn(text, table_CV), normalizes_length=False)
        losses_T = policy_losses(
            table_CV[rows], tokens, later_BT[0, 1:-1] - baseline, None, log_p_CV[rows], 1.0
        )
        (gradient,) = torch.autograd.grad(losses_T.sum(), table_CV, retain_graph=True)
        expected += log_q.exp().detach() * gradient
    (gradient,) = torch.autograd.grad(divergence, table_CV)
    torch.testing.assert_close(expected, gradient, rtol=0, atol=1e-9)
    assert gradient.abs().max() > 1e-2


def test_rewards_and_weights_are_their_formulas(tmp_path_factory: pytest.TempPathFactory) -> None:
    student = load_student(write_llama(tmp_path_factory.mktemp("student"), 4))
    teacher = load_teacher(write_llama(tmp_path_factory.mktemp("teacher"), 9))
    sampling = sampling_of(prompts_of([5, 1, 3]), 7, stop_ids=frozenset(range(0, 300, 4)))
    found = sample(student, sampling, 0, teacher, 0.2)
    assert found.log_p_BT is not None
    later_BT, has_later_BT = later_rewards(found, normalizes_length=True)
    weights_BT = importance_weights(found, 0.2)
    for row, answer in enumerate(found.answers()):
        here = found.drawn_places()[row]
        log_q, log_p = found.log_q_BT[row, here].tolist(), found.log_p_BT[row, here].tolist()
        expected = torch.tensor(reference.mean_later_rewards(log_q, log_p))
        torch.testing.assert_close(later_BT[row, here], expected, rtol=1e-5, atol=1e-5)
        pairs = zip(log_q, log_p, strict=True)
        weights = torch.tensor([reference.importance_weight(*pair, 0.2) for pair in pairs])
        torch.testing.assert_close(weights_BT[row, here], weights, rtol=1e-5, atol=1e-6)
        assert has_later_BT[row].sum() == len(answer) - 1
        assert (weights_BT[row, ~here] == 0).all()
    batch = MiniLLMBatches(sampling=sampling, teacher=teacher).batch(0, student)
    assert batch.advantages_BT is not None
    assert batch.weights_BT is not None
    assert (batch.weights_BT == weights_BT[:, 1:]).all()
    places_BT = has_later_BT[:, 1:]
    assert (batch.advantages_BT[~places_BT] == 0).all()
    differences = batch.advantages_BT[places_BT] - later_BT[:, 1:][places_BT]
    torch.testing.assert_close(differences, -later_BT[has_later_BT].mean().expand_as(differences))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_weights_undo_the_mixture(share: float) -> None:
    """The mean of anything over the student is its weighted mean over the mixture."""
    log_q_V, log_p_V = OWN[0].log_softmax(-1), TAUGHT[0].log_softmax(-1)
    values_V = torch.tensor([3.0, -1.0, 0.5]).double()
    each = Samples(
        tokens_BT=torch.tensor([[0, token] for token in range(TOKENS)]),
        prompt_lengths_B=torch.ones(TOKENS, dtype=torch.int64),
        lengths_B=torch.full((TOKENS,), 2),
        log_q_BT=torch.stack([torch.zeros(TOKENS), log_q_V], 1),
        log_p_BT=torch.stack([torch.zeros(TOKENS), log_p_V], 1),
    )
    weights_V = importance_weights(each, share)[:, 1]
    mixed_V = share * log_p_V.exp() + (1 - share) * log_q_V.exp()
    torch.testing.assert_close(
        (mixed_V * weights_V * values_V).sum(), (log_q_V.exp() * values_V).sum()
    )


def test_answers_of_one_token_have_no_later_rewards(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    student = load_student(write_llama(tmp_path_factory.mktemp("student"), 4))
    teacher = load_teacher(write_llama(tmp_path_factory.mktemp("teacher"), 9))
    source = MiniLLMBatches(sampling=sampling_of(prompts_of([5, 1]), 1), teacher=teacher)
    batch = source.batch(0, student)
    assert batch.num_targets == 2
    assert batch.advantages_BT is not None
    assert (batch.advantages_BT == 0).all()
    loss = minillm_objective(teacher).total(student, batch, "fp32", recomputes=False)
    assert loss.isfinite()


def test_a_student_like_its_teacher_has_nothing_to_learn(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = write_llama(tmp_path_factory.mktemp("one"), 4)
    student, teacher = load_student(folder), load_teacher(folder)
    sampling = sampling_of(prompts_of([5, 1]))
    student.requires_grad_(True)
    batch = MiniLLMBatches(sampling=sampling, teacher=teacher).batch(0, student)
    loss = minillm_objective(teacher).total(student, batch, "fp32", recomputes=False)
    gradients = torch.autograd.grad(loss, list(student.parameters()))
    assert max(float(one.abs().max()) for one in gradients) < 1e-3
    assert own_divergence(student, teacher, sampling, 2) == pytest.approx(0.0, abs=1e-6)


def test_other_distributions_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    teacher = load_teacher(write_llama(tmp_path_factory.mktemp("teacher"), 9))
    with pytest.raises(ConfigError, match="own distribution"):
        MiniLLMBatches(sampling=sampling_of(prompts_of([5]), temperature=0.7), teacher=teacher)
    with pytest.raises(ConfigError, match="teacher's share"):
        MiniLLMBatches(sampling=sampling_of(prompts_of([5])), teacher=teacher, teacher_share=1.1)
