"""Batches keep to their tokens, every text is taken once and in order, and nobody waits for a long
job to end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paredown.engine.encode.batch_config import BatchConfig
from paredown.engine.encode.encode_job import EncodeJob, TextCounts
from paredown.engine.encode.run_batch import batches_by_length
from paredown.engine.encode.text_queue import QueuedJob, TextQueue
from paredown.errors import ConfigError
from paredown.executors.encoder_protocol import TokenText

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def queued(lengths: list[int], tenant: str = "", output: str = "head") -> QueuedJob:
    job = EncodeJob(
        texts=[TokenText(token_ids=[1] * length) for length in lengths],
        counts=TextCounts(num_tokens=tuple(lengths)),
        finish=list,
        output=output,
    )
    return QueuedJob(job=job, tenant=tenant)


@given(st.lists(st.tuples(LENGTHS, st.sampled_from("ab")), max_size=8), st.integers(1, 60))
@settings(deadline=None)
def test_every_text_is_taken_once_and_no_batch_is_too_large(jobs, budget):
    queue = TextQueue(budget)
    all_queued = [queued(lengths, tenant) for lengths, tenant in jobs]
    for one in all_queued:
        queue.add(one)
    taken = {id(one): list[int]() for one in all_queued}
    while queue:
        batch = queue.take()
        sizes = [
            len(one.job.texts[number].token_ids) for one, numbers in batch for number in numbers
        ]
        assert sum(sizes) <= budget or len(sizes) == 1
        for one, numbers in batch:
            taken[id(one)] += numbers
    assert [taken[id(one)] for one in all_queued] == [
        list(range(len(lengths))) for lengths, _ in jobs
    ]


@given(LENGTHS, st.integers(1, 60))
def test_offline_batches_hold_every_text_once(lengths, budget):
    batches = list(batches_by_length(lengths, budget))
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert sum(lengths[number] for number in batch) <= budget or len(batch) == 1


def order_of(queue: TextQueue) -> list[QueuedJob]:
    """The jobs in the order in which their last texts are taken."""
    ended = []
    while queue:
        ended += [one for one, _ in queue.take() if one.is_taken]
    return ended


def test_a_short_job_does_not_wait_for_a_long_one():
    queue = TextQueue(100)
    long, short = queued([10] * 1000), queued([10])
    queue.add(long)
    queue.add(short)
    assert order_of(queue) == [short, long]


def test_a_tenant_with_many_jobs_does_not_delay_another():
    queue = TextQueue(10)
    many = [queued([10], "greedy") for _ in range(20)]
    for one in many:
        queue.add(one)
    other = queued([10], "modest")
    queue.add(other)
    assert order_of(queue).index(other) == 1


def test_jobs_of_a_tenant_end_in_order_of_arrival():
    queue = TextQueue(100)
    jobs = [queued([30] * 3) for _ in range(5)]
    for one in jobs:
        queue.add(one)
    assert order_of(queue) == jobs


def test_a_batch_wants_one_output():
    queue = TextQueue(100)
    jobs = [queued([10]), queued([10], output="tokens"), queued([10])]
    for one in jobs:
        queue.add(one)
    batches = [[one for one, _ in queue.take()] for _ in range(3)]
    assert batches == [[jobs[0]], [jobs[1]], [jobs[2]]]


def test_a_dropped_job_is_not_taken_any_more():
    queue = TextQueue(10)
    one, other = queued([10, 10]), queued([10])
    queue.add(one)
    queue.add(other)
    queue.take()
    queue.drop(one)
    queue.drop(one)
    assert order_of(queue) == [other]
    assert not queue


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
@pytest.mark.parametrize("name", ["max_batch_tokens", "max_waiting_tokens", "max_waiting_texts"])
def test_senseless_sizes_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        BatchConfig(**{name: value})
