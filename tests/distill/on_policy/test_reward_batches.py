"""An answer's advantage is over the others to its prompt, and its expected gradient is that of the
reward."""

import itertools

import pytest
import torch

from drivers.tiny_sampling import load_student, prompts_of, sampling_of, write_llama
from paredown.distill.on_policy.policy_loss import policy_losses
from paredown.distill.on_policy.reward import CallableReward
from paredown.distill.on_policy.reward_batches import RewardBatches, compared
from paredown.distill.on_policy.sample import sample
from paredown.errors import ConfigError

LENGTH = CallableReward(function=lambda prompt, answer: len(answer) + 0.1 * len(prompt))


def words(ids: object) -> str:
    return " ".join(str(one) for one in ids)  # type: ignore[attr-defined]


def test_advantages_compare_the_answers_to_a_prompt() -> None:
    found = compared([1.0, 2.0, 6.0, 5.0, 5.0, 5.0], 3)
    torch.testing.assert_close(found, torch.tensor([-3.0, -1.5, 4.5, 0.0, 0.0, 0.0]))


def test_the_expected_gradient_is_that_of_the_reward() -> None:
    """All pairs of answers of one token, each with its probability."""
    random = torch.Generator().manual_seed(3)
    logits_V = torch.randn(4, generator=random, dtype=torch.float64).requires_grad_()
    rewards = [0.3, -1.0, 2.0, 0.5]
    q_V = logits_V.softmax(-1)
    (expected_V,) = torch.autograd.grad((q_V * torch.tensor(rewards)).sum(), logits_V)
    found_V = torch.zeros(4).double()
    for pair in itertools.product(range(4), repeat=2):
        advantages_N = compared([rewards[token] for token in pair], 2).double()
        losses_N = policy_losses(
            logits_V.expand(2, -1), torch.tensor(pair), advantages_N, None, None, 0.0
        )
        (gradient_V,) = torch.autograd.grad(losses_N.mean(), logits_V)
        found_V += q_V[pair[0]].item() * q_V[pair[1]].item() * gradient_V
    torch.testing.assert_close(found_V, -expected_V, rtol=0, atol=1e-6)


def test_a_batch_has_each_answers_advantage_at_its_tokens(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    student = load_student(write_llama(tmp_path_factory.mktemp("student"), 4))
    stops = frozenset(range(0, 300, 4))
    sampling = sampling_of(prompts_of([5, 1, 3]), 7, stop_ids=stops, num_each=3)
    told: list[tuple[int, list[float]]] = []
    source = RewardBatches(
        sampling=sampling,
        reward=LENGTH,
        decode=words,
        on_rewards=lambda step, rewards: told.append((step, list(rewards))),
    )
    batch, drawn = source.batch(4, student), sample(student, sampling, 4)
    assert batch.targets().tolist() == drawn.batch().targets().tolist()
    expected = [
        len(words(answer)) + 0.1 * len(words(prompt))
        for prompt, answer in zip(sampling.step_prompts(4), drawn.answers(), strict=True)
    ]
    assert told == [(4, pytest.approx(expected))]
    assert batch.advantages_BT is not None
    assert batch.weights_BT is None
    for row, advantage in enumerate(compared(expected, 3)):
        here = batch.advantages_BT[row, batch.is_target_BT[row]]
        torch.testing.assert_close(here, advantage.expand_as(here), rtol=1e-5, atol=1e-5)


def test_one_answer_to_a_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match="compared with others"):
        RewardBatches(sampling=sampling_of(prompts_of([5])), reward=LENGTH, decode=words)
    sampling = sampling_of(prompts_of([5]), num_each=2, temperature=2.0)
    with pytest.raises(ConfigError, match="own distribution"):
        RewardBatches(sampling=sampling, reward=LENGTH, decode=words)
