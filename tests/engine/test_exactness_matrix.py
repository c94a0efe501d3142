"""Promise 1, Exact, as one matrix: tokens and log-probabilities of the default model have the same
bits however a request is run.

Each axis alone, all pairs of axes, and a walk at random through the whole of it.
docs/internals/exactness.md says what lies on the axes; what is below the engine has tests of its
own, named there.
"""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivers.exactness_checks import ALONE, TOGETHER, check, named, one_axis
from drivers.exactness_matrix import AXES, BASE, DRAWS, PROMPTS, QUESTION, Matrix, Point
from drivers.pairwise import pairwise
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.executors.wrapped_executor import WrappedExecutor

PAIRS = pairwise(AXES)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    return Matrix(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("point", [ALONE, *one_axis(ALONE)], ids=named)
def test_one_axis_changes_no_bit(matrix: Matrix, point: Point) -> None:
    check(matrix, point)


@pytest.mark.parametrize("point", [TOGETHER, *one_axis(TOGETHER)], ids=named)
def test_one_axis_changes_no_bit_in_a_batch(matrix: Matrix, point: Point) -> None:
    outcome = check(matrix, point)
    if point["speculation"] != "off":
        stats = outcome.speculation
        assert 0 < sum(stats.num_accepted) < sum(stats.num_proposed), "hits and misses"


@pytest.mark.parametrize("point", PAIRS, ids=named)
def test_no_pair_of_axes_changes_a_bit(matrix: Matrix, point: Point) -> None:
    check(matrix, point)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_nothing_in_the_whole_matrix_changes_a_bit(matrix: Matrix, data: st.DataObject) -> None:
    """Any value of each axis, those between the listed ones too, and neighbours who are asked for
    something else."""
    drawn = {name: data.draw(st.sampled_from(values), label=name) for name, values in AXES.items()}
    point = drawn | {
        "batch": data.draw(st.integers(1, 33), label="batch"),
        "step": data.draw(st.sampled_from((1, 4096)) | st.integers(2, 200), label="step"),
    }
    requests = st.tuples(st.integers(0, len(PROMPTS) - 1), st.sampled_from(list(DRAWS)))
    num_requests = data.draw(st.integers(1, 12), label="requests")
    work = data.draw(st.lists(requests, min_size=num_requests, max_size=num_requests))
    outcome = matrix.run(point, work, seed=data.draw(st.integers(0, 99), label="seed"))
    expected = matrix.expected(point, work)
    for answers in outcome.answers:
        assert answers == expected


def changed(executor: Executor) -> Executor:
    """Moves one logit by its last bit in every step of several sequences."""

    def step(slices: list[SequenceSlice]) -> npt.NDArray[np.float32]:
        logits = executor.step(slices)
        if len(slices) > 1 and len(logits):
            best = logits[0].argmax()
            logits[0, best] = np.nextafter(logits[0, best], np.float32(np.inf))
        return logits

    return WrappedExecutor(executor, step)


def test_a_single_changed_bit_is_found(matrix: Matrix) -> None:
    executor = changed(matrix.executor(TOGETHER))
    work = matrix.work(TOGETHER)
    (answers,) = matrix.run(TOGETHER, work, executor).answers
    expected = matrix.expected(TOGETHER, work)
    assert [one[0] for one in answers] == [one[0] for one in expected], "the tokens are the same"
    assert answers != expected


def test_each_question_has_an_answer_of_its_own(matrix: Matrix) -> None:
    questions = pairwise(QUESTION)
    answers = [matrix.answer({**BASE, **one}, 0, one["draw"]) for one in questions]
    for one, other in combinations(answers, 2):
        assert one != other


def test_the_pairs_are_all_there_and_few() -> None:
    seen = {frozenset(pair) for point in PAIRS for pair in combinations(point.items(), 2)}
    for (a, xs), (b, ys) in combinations(AXES.items(), 2):
        for x in xs:
            for y in ys:
                assert frozenset({(a, x), (b, y)}) in seen
    assert len(PAIRS) < 60
