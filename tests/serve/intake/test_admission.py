from types import SimpleNamespace

import pytest

from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.serve.errors import HttpError
from paredown.serve.intake.admission import Admission
from paredown.serve.intake.intake import MAX_JOBS, Intake


class Worker:
    def __init__(self, num_places: int) -> None:
        self.num_places = num_places

    def admit(self, num_answers: int) -> int:
        if num_answers > self.num_places:
            raise QueueFullError("full", seen="full", remedy="Wait.")
        self.num_places -= num_answers
        return num_answers

    def close(self, session: int) -> None:
        self.num_places += session


def state(num_places: int) -> SimpleNamespace:
    return SimpleNamespace(intake=Intake(), worker=Worker(num_places), max_positions=1000)


def test_places_and_log_probabilities_are_held_until_it_is_closed():
    one = state(10)
    params = SamplingParams(n=3, max_tokens=50, logprobs=4)
    admission = Admission(one, 2, params)
    assert one.worker.num_places == 4
    assert one.intake.logprobs.num_held == 6 * 50 * 5
    admission.close()
    assert one.worker.num_places == 10
    assert one.intake.logprobs.num_held == 0


def test_without_a_bound_of_its_own_it_may_come_to_the_whole_context():
    one = state(10)
    for max_tokens in (None, 5000):
        admission = Admission(one, 1, SamplingParams(max_tokens=max_tokens, logprobs=0))
        assert one.intake.logprobs.num_held == 1000
        admission.close()


def test_who_finds_no_place_holds_nothing():
    one = state(2)
    with pytest.raises(QueueFullError):
        Admission(one, 3, SamplingParams(logprobs=4))
    assert one.intake.logprobs.num_held == 0


def test_more_answers_than_one_request_may_ask_for():
    one = state(1000)
    with pytest.raises(HttpError, match="together"):
        Admission(one, MAX_JOBS // 2 + 1, SamplingParams(n=2))
    assert one.worker.num_places == 1000
