"""A budget forces the end of reasoning at one place, and nothing anywhere else."""

from hypothesis import given
from hypothesis import strategies as st

from paredown.serve.intake.thinking_budget import ThinkingBudget

START, END = (1, 2), (3, 4, 5)


def budget(num_tokens: int, *, is_open: bool) -> ThinkingBudget:
    return ThinkingBudget(
        num_tokens=num_tokens,
        is_open=is_open,
        start_ids=START,
        end_ids=END,
        start="12",
        end="345",
        decode=lambda token_ids: "".join(map(str, token_ids)),
    )


def run(limit: ThinkingBudget, wanted: list[int]) -> list[int]:
    """What a model writes that wants these tokens."""
    written: list[int] = []
    wishes = iter(wanted)
    while True:
        forced = limit(written)
        token_id = forced[0] if forced is not None else next(wishes, None)
        if token_id is None:
            return written
        written.append(token_id)


@given(st.lists(st.integers(6, 9), max_size=12), st.integers(0, 8))
def test_reasoning_has_as_many_tokens_as_the_budget(thoughts: list[int], most: int) -> None:
    kept, rest = thoughts[:most], thoughts[most:]
    is_cut = len(thoughts) >= most
    wanted = [*kept, *END, *rest] if is_cut else thoughts
    assert run(budget(most, is_open=True), thoughts) == wanted
    marked = run(budget(most, is_open=False), [*START, *thoughts])
    assert marked == [*START, *wanted]


def test_reasoning_that_ended_is_left_alone() -> None:
    for thoughts in ([7, *END, 8, 9, 9, 9], [7, 345, 8, 9, 9, 9]):
        for most in range(len(thoughts)):
            ends = 4 if END[0] in thoughts else 2
            if most >= ends:
                assert run(budget(most, is_open=True), thoughts) == thoughts


def test_an_answer_without_reasoning_is_left_alone() -> None:
    assert run(budget(2, is_open=False), [6, 7, 8, 9]) == [6, 7, 8, 9]
