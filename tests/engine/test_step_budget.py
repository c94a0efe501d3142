import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.toy_executor import ToyExecutor, toy_spec
from paredown.engine.step_budget import NUM_DECODING, choose_step_budget
from paredown.errors import ConfigError
from paredown.executors.page_memory import PLANNED_STEP_TOKENS


class Timed(ToyExecutor):
    """A step takes `base_s` and `token_s` per token, on a clock of its own."""

    def __init__(self, *, base_s: float, token_s: float, num_pages=256, max_positions=4096):
        super().__init__(num_pages=num_pages, spec=toy_spec(max_positions=max_positions))
        self.base_s, self.token_s = base_s, token_s
        self.now_s = 0.0
        self.sizes: list[int] = []

    def step(self, slices):
        num_tokens = sum(len(one.token_ids) for one in slices)
        self.now_s += self.base_s + self.token_s * num_tokens
        self.sizes.append(num_tokens)
        assert len({one.start + i for one in slices for i in range(len(one.token_ids))}) == (
            num_tokens
        ), "no two write to the same place"
        assert max(one.start + len(one.token_ids) for one in slices) <= self.spec.max_positions
        assert len(slices) <= NUM_DECODING + 1


def choose(executor: Timed, target_s: float):
    return choose_step_budget(executor, target_s, clock=lambda: executor.now_s)


def test_the_budget_is_the_largest_step_within_the_target():
    executor = Timed(base_s=0.002, token_s=0.0001)
    budget = choose(executor, 0.0202)
    assert budget.max_step_tokens == 176  # 0.0196 s; 182 tokens would take the target
    assert budget.is_reached
    assert budget.arithmetic() == (
        "step budget 176 tokens for 20.2 ms between tokens; steps of so many tokens took "
        "16: 3.6 ms, 32: 5.2 ms, 64: 8.4 ms, 128: 14.8 ms, 256: 27.6 ms"
    )


def test_a_target_that_cannot_be_kept_is_said():
    budget = choose(Timed(base_s=0.1, token_s=0.0001), 0.01)
    assert budget.max_step_tokens == 16
    assert "which is not reached" in budget.arithmetic()


@given(
    base_s=st.floats(1e-5, 0.1),
    token_s=st.floats(1e-7, 1e-2),
    target_s=st.floats(1e-4, 10),
    num_pages=st.integers(1, 300),
    max_positions=st.integers(2, 5000),
)
def test_a_step_of_the_budget_keeps_the_target(base_s, token_s, target_s, num_pages, max_positions):
    executor = Timed(
        base_s=base_s, token_s=token_s, num_pages=num_pages, max_positions=max_positions
    )
    budget = choose(executor, target_s)
    assert max(executor.sizes) <= PLANNED_STEP_TOKENS
    assert budget.max_step_tokens >= 1
    if budget.is_reached:
        assert base_s + token_s * budget.max_step_tokens <= target_s * 1.001


@pytest.mark.parametrize("target_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_target_is_refused(target_s):
    with pytest.raises(ConfigError, match="between tokens"):
        choose(Timed(base_s=0.1, token_s=0.1), target_s)
