"""A teacher that fails in every way, and what was answered all the same."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.teacher_server import FakeTeacher, Fault, running_teacher
from paredown.distill.black_box.answer_log import open_answer_log
from paredown.distill.black_box.asker import Asker, AskLimits
from paredown.distill.black_box.request import TeacherRequest, question
from paredown.distill.black_box.teacher import TeacherConfig
from paredown.errors import ConfigError

SOON = 0.005


def request(text: str, max_tokens: int = 50, seed: int | None = None) -> TeacherRequest:
    return TeacherRequest(
        model="big", messages=question(text), max_tokens=max_tokens, temperature=0.5, seed=seed
    )


REQUESTS = [request(f"one and {number}") for number in range(12)]


@contextmanager
def asking(
    teacher: FakeTeacher, folder: Path, timeout_s: float = 20.0, **limits: object
) -> Iterator[Asker]:
    config = TeacherConfig(address=teacher.url, model="big", timeout_s=timeout_s)
    limits = {"first_wait_s": SOON, "concurrency": 4, **limits}
    with (
        open_answer_log(folder / "log") as log,
        Asker(config, AskLimits(**limits), log) as asker,
    ):
        yield asker


def test_answers_come_in_order_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    with running_teacher(delay_s=0.02) as teacher:
        with asking(teacher, tmp_path) as asker:
            found = asker.ask([*REQUESTS, *REQUESTS])
            assert asker.ask(REQUESTS[:3]) == found[:3]
            assert [one and one.text for one in found[:12]] == [
                f"It is known that one and {number}" for number in range(12)
            ]
            assert found[:12] == found[12:]
            assert asker.num_tokens == teacher.num_tokens
        with asking(teacher, tmp_path) as asker:
            assert asker.ask(REQUESTS) == found[:12]
            assert asker.num_requests == 0
        assert set(teacher.asked.values()) == {1}
        assert len(teacher.asked) == 12
        assert 2 <= teacher.most_at_once <= 4
        assert teacher.paths == {"/v1/chat/completions"}


def test_other_parameters_are_another_request() -> None:
    same = request("a")
    others = [request("b"), request("a", 51), request("a", seed=1)]
    assert request("a").key == same.key
    assert len({one.key for one in (same, *others)}) == 4


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, headers={"Retry-After": "0"}),
        Fault(status=500),
        Fault(status=503),
        Fault(status=408),
        Fault(hangs_up=True),
        Fault(body=b"<html>try later</html>"),
        Fault(body=b'{"choices": []}'),
        Fault(delay_s=0.4),
    ],
    ids=["429", "500", "503", "408", "hang-up", "html", "no choice", "slow"],
)
def test_a_failure_that_passes_is_asked_again(fault: Fault, tmp_path: Path) -> None:
    fault.times = 5
    with running_teacher(faults=[fault]) as teacher, asking(teacher, tmp_path, 0.3) as asker:
        assert all(asker.ask(REQUESTS))
        assert not asker.failures
        assert asker.error is None
        assert set(teacher.answered.values()) <= {1, 2}
        assert teacher.num_asked == 12 + 5 == asker.num_requests


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(status=400, times=3), "status 400"),
        (Fault(status=413, times=3), "status 413"),
        (Fault(body=b"{}", times=18), "garbage"),
    ],
    ids=["400", "413", "garbage"],
)
def test_a_failure_that_stays_is_counted_and_the_rest_answered(
    fault: Fault, reason: str, tmp_path: Path
) -> None:
    with (
        running_teacher(faults=[fault]) as teacher,
        asking(teacher, tmp_path, concurrency=1) as asker,
    ):
        found = asker.ask(REQUESTS)
        assert found.count(None) == 3
        assert asker.failures == {reason: 3}
        assert asker.error is None


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(status=401), "refuses every request"),
        (Fault(status=404), "refuses every request"),
        (Fault(status=307, headers={"Location": "/elsewhere"}), "refuses every request"),
        (Fault(status=429, body=b'{"error": {"code": "insufficient_quota"}}'), "refuses every"),
        (Fault(status=429, headers={"Retry-After": "3600"}), "no request for 1 h"),
        (Fault(status=500), "does not answer"),
        (Fault(hangs_up=True), "does not answer"),
    ],
)
def test_a_teacher_that_is_gone_ends_the_run(fault: Fault, says: str, tmp_path: Path) -> None:
    with running_teacher() as teacher:
        with asking(teacher, tmp_path) as asker:
            assert all(asker.ask(REQUESTS[:2]))
        teacher.faults.append(fault)
        with asking(teacher, tmp_path) as asker:
            found = asker.ask(REQUESTS)
            assert [one is not None for one in found] == [True] * 2 + [False] * 10
            assert asker.error is not None
            assert says in asker.error.what
            assert asker.ask([request("more")]) == [None]
        assert teacher.num_asked <= 2 + (8 + 3) * 6


def test_a_port_that_nobody_listens_on_is_told(tmp_path: Path) -> None:
    with running_teacher() as teacher:
        pass
    with asking(teacher, tmp_path) as asker:
        asker.ask(REQUESTS)
        assert asker.error is not None
        assert "not reached" in asker.error.seen
        assert teacher.url in asker.error.what
        assert asker.num_tokens == 0


def test_refusals_are_counted_and_many_in_a_row_end_the_run(tmp_path: Path) -> None:
    sorry = "I'm sorry, but I can't help with that."
    with running_teacher(reply=lambda prompt: sorry) as teacher, asking(teacher, tmp_path) as asker:
        requests = [request(f"number {number}") for number in range(60)]
        assert not any(asker.ask(requests))
        assert asker.error is not None
        assert "nothing of use" in asker.error.what
        assert 32 <= asker.failures["refused"] <= 36
        assert teacher.num_asked <= 36


def test_everybody_waits_as_long_as_the_teacher_asks(tmp_path: Path) -> None:
    """Requests that start earlier were under way before the refusal arrived."""
    fault = Fault(status=429, headers={"Retry-After": "0.5"}, times=1)
    with (
        running_teacher(faults=[fault], delay_s=0.02) as teacher,
        asking(teacher, tmp_path, concurrency=2) as asker,
    ):
        assert all(asker.ask(REQUESTS[:5]))
        first, _, _, *others = teacher.times_s
        assert len(others) == 3
        assert all(0.5 <= one - first < 5 for one in others)


def test_those_that_wait_for_their_turn_wait_as_long_as_the_teacher_asks(tmp_path: Path) -> None:
    fault = Fault(status=429, headers={"Retry-After": "1"}, times=1)
    with (
        running_teacher(faults=[fault]) as teacher,
        asking(teacher, tmp_path, requests_per_minute=240) as asker,
    ):
        assert all(asker.ask(REQUESTS[:3]))
        first, *others = teacher.times_s
        assert [one - first >= 1 for one in others] == [True] * 3
        assert others[-1] - others[0] >= 2 * 0.25 * 0.9


def test_requests_start_no_faster_than_the_rate(tmp_path: Path) -> None:
    with (
        running_teacher() as teacher,
        asking(teacher, tmp_path, requests_per_minute=1200) as asker,
    ):
        assert all(asker.ask(REQUESTS[:8]))
        assert teacher.times_s[-1] - teacher.times_s[0] >= 7 * 0.05 * 0.9


BUDGETS = st.tuples(
    st.integers(300, 6000),  # the budget
    st.lists(st.integers(1, 400), min_size=1, max_size=12),  # tokens of answers
    st.lists(st.sampled_from(["", "hang-up", "408", "500", "503", "504", "garbage"]), max_size=6),
    st.booleans(),  # whether the teacher tells its usage
)


@settings(max_examples=15, deadline=None)
@given(BUDGETS)
def test_the_budget_is_never_overspent(tmp_path_factory, case) -> None:
    """By the count of the server, where each question costs all that it can: answers that got lost
    cost too, and a second run goes on with what is left."""
    budget, sizes, faults, tells = case
    folder = tmp_path_factory.mktemp("budget")
    requests = [request(f"{number:03}", size) for number, size in enumerate(sizes)]
    costs = {one.messages[0]["content"]: one.most_tokens for one in requests}
    kinds = {
        "": Fault(times=1),
        "hang-up": Fault(hangs_up=True, times=1),
        "408": Fault(status=408, bills=True, times=1),
        "500": Fault(status=500, bills=True, times=1),
        "503": Fault(status=503, times=1),
        "504": Fault(status=504, bills=True, times=1),
        "garbage": Fault(body=b"{}", times=1),
    }
    with running_teacher(usage=lambda prompt, text: costs[prompt]) as teacher:
        teacher.faults += [kinds[fault] for fault in faults]
        teacher.tells_usage = tells
        for _ in range(2):
            with asking(teacher, folder, concurrency=3, max_tokens_total=budget) as asker:
                found = asker.ask(requests)
                assert asker.num_tokens == teacher.num_tokens <= budget
                assert asker.is_spent == (None in found)
        left = [one for one, answer in zip(requests, found, strict=True) if answer is None]
        assert all(one.most_tokens > budget - teacher.num_tokens for one in left[:1])
        assert set(teacher.answered.values()) <= {1}


def test_a_run_that_goes_on_reserves_what_answers_have_cost_beyond_their_bound(
    tmp_path: Path,
) -> None:
    """Each costs 100 tokens more than its bound; only the first ones can overspend by that."""
    bound = REQUESTS[0].most_tokens
    with running_teacher(usage=lambda prompt, text: bound + 100) as teacher:
        with asking(teacher, tmp_path, concurrency=3) as asker:
            assert all(asker.ask(REQUESTS[:3]))
        budget = 4 * (bound + 100) + bound + 99
        with asking(teacher, tmp_path, max_tokens_total=budget) as asker:
            assert [one is not None for one in asker.ask(REQUESTS[3:6])] == [True, False, False]
            assert asker.num_tokens == teacher.num_tokens == 4 * (bound + 100)


def test_a_budget_that_ends_in_the_middle_keeps_what_was_answered(tmp_path: Path) -> None:
    budget = 2 * REQUESTS[0].most_tokens
    with running_teacher() as teacher:
        with asking(teacher, tmp_path, max_tokens_total=budget) as asker:
            found = asker.ask(REQUESTS)
            assert asker.is_spent
            num = 12 - found.count(None)
            assert 2 <= num < 12
            assert budget - asker.num_tokens < REQUESTS[0].most_tokens
        with asking(teacher, tmp_path, max_tokens_total=100 * budget) as asker:
            assert all(asker.ask(REQUESTS))
            assert asker.num_requests == 12 - num
        assert set(teacher.asked.values()) == {1}


def test_an_end_wakes_those_that_wait_for_their_turn_or_for_the_budget(tmp_path: Path) -> None:
    """Their turns come in 10 and 20 seconds, and the fourth waits for what they have reserved."""
    budget = 3 * REQUESTS[0].most_tokens + 10
    started_s = time.monotonic()
    with (
        running_teacher(faults=[Fault(status=401)]) as teacher,
        asking(teacher, tmp_path, requests_per_minute=6, max_tokens_total=budget) as asker,
    ):
        assert not any(asker.ask(REQUESTS))
        assert (teacher.num_asked, asker.num_tokens) == (1, 0)
    assert time.monotonic() - started_s < 9


def test_an_interrupt_ends_the_run_at_once_and_keeps_answers(tmp_path: Path) -> None:
    class StopError(BaseException):
        pass

    def stop(worth: float) -> None:
        raise StopError

    with running_teacher() as teacher:
        config = TeacherConfig(address=teacher.url, model="big")
        limits = AskLimits(concurrency=2)
        with open_answer_log(tmp_path / "log") as log:
            with pytest.raises(StopError), Asker(config, limits, log, stop) as asker:
                asker.ask(REQUESTS)
            assert 1 <= len(log.answers) <= 2
    assert threading.active_count() < 20


@pytest.mark.parametrize(
    "limits",
    [
        {"concurrency": 0},
        {"concurrency": 5000},
        {"first_wait_s": -1.0},
        {"requests_per_minute": 0.0},
        {"max_tokens_total": 0},
    ],
)
def test_limits_out_of_range_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        AskLimits(**limits)
