"""Comparing with and without speculation: the same requests side by side, on executors that change
places."""

import pytest

from fakes.knowing_proposer import KnowingProposer
from fakes.toy_executor import ToyExecutor, ToyTokenizer, toy_spec
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.evaluate.speed.speculation import (
    RequestRounds,
    SpeculationSpeed,
    compare_speculation,
)
from references.plain_loop import plain_loop

SPEC = toy_spec(max_positions=96)
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
PROMPTS = [[[7 + i, 9, 11 + j] for j in range(3)] for i in range(5)]


class Counting(ToyExecutor):
    """Counts the tokens of its steps."""

    def __init__(self) -> None:
        super().__init__(num_pages=24, spec=SPEC)
        self.num_tokens = 0

    def step(self, slices):
        self.num_tokens += sum(len(part.token_ids) for part in slices)
        return super().step(slices)


def answers():
    return [
        prompt
        + plain_loop(prompt, GREEDY, vocab_size=SPEC.vocab_size, max_total_tokens=len(prompt) + 24)[
            0
        ]
        for prompts in PROMPTS
        for prompt in prompts
    ]


def compare(executors, proposer, on_progress=None):
    config = SpeculationConfig(kind="ngram", max_draft_tokens=4, is_adaptive=False)
    requests = RequestRounds(name="toy", rounds=PROMPTS, params=GREEDY)
    speculator = Speculator(proposer, config)
    return compare_speculation(executors, ToyTokenizer(), speculator, requests, on_progress)


def test_both_answer_alike_and_the_first_round_does_not_count():
    seen = []
    executors = Counting(), Counting()
    speed = compare(executors, KnowingProposer(answers()), lambda *count: seen.append(count))
    assert speed.num_different == 0
    assert len(speed.without) == len(speed.speculating) == len(speed.gains) == 4
    assert all(rate > 0 for rate in (*speed.without, *speed.speculating))
    assert seen == [(number, 5) for number in range(1, 6)]
    assert speed.tokens_per_step > 2
    assert 0.5 < speed.acceptance_rate < 1
    # Each executor has both kinds of rounds: what was rejected is computed on both.
    num_certain = 3 * (3 + 24 - 1)
    for executor in executors:
        assert executor.num_tokens > 5 * num_certain


def test_a_proposer_that_fails_ends_the_comparison():
    class Failing(KnowingProposer):
        def propose(self, asks):
            raise ValueError("it is broken")

    with pytest.raises(AssertionError, match="it is broken"):
        compare((Counting(), Counting()), Failing([]))


def test_a_gain_is_how_many_times_faster_round_by_round():
    """A round in which a neighbour held both up gains as any other."""
    speed = SpeculationSpeed(
        name="toy", without=[10.0, 1.0, 20.0, 10.0, 10.0], speculating=[20.0, 3.0, 20.0, 40.0, 25.0]
    )
    assert speed.gains == [2.0, 3.0, 1.0, 4.0, 2.5]
    assert speed.gain == 2.5
    assert speed.spread == (3.0 - 2.0) / 2.5
    assert SpeculationSpeed(name="toy", without=[2.0], speculating=[5.0]).spread == 0
