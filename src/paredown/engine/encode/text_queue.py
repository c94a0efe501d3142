"""TextQueue: the texts of all callers, and which of them are encoded next."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from paredown.engine.encode.encode_job import EncodeJob, Row


@dataclass(eq=False, kw_only=True)
class QueuedJob:
    """A job under way: `num_taken` of its texts have been taken, and `rows` are those computed.
    `turn_tokens` are the tokens that were taken since it got its turn."""

    job: EncodeJob[Any]
    tenant: str = ""
    num_taken: int = 0
    turn_tokens: int = 0
    rows: dict[int, Row] = field(default_factory=dict)

    @property
    def is_taken(self) -> bool:
        return self.num_taken == len(self.job.texts)


Q = TypeVar("Q", bound=QueuedJob)


class TextQueue(Generic[Q]):
    """Takes turns among tenants, and within a tenant among jobs, in order of arrival. A turn is a
    job, or a batch's tokens of one that has more: a long job is not in the way of others."""

    def __init__(self, max_batch_tokens: int) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._tenants: dict[str, deque[Q]] = {}

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def __iter__(self) -> Iterator[Q]:
        for queue in self._tenants.values():
            yield from queue

    def add(self, queued: Q) -> None:
        self._tenants.setdefault(queued.tenant, deque()).append(queued)

    def drop(self, queued: Q) -> None:
        """Removes a job, if it is here."""
        queue = self._tenants.get(queued.tenant, deque())
        if queued in queue:
            queue.remove(queued)
            if not queue:
                del self._tenants[queued.tenant]

    def take(self) -> list[tuple[Q, range]]:
        """Returns the next batch: jobs, and which of their texts. All want the same output. The
        queue must not be empty."""
        batch: list[tuple[Q, range]] = []
        num_left = self._max_batch_tokens
        while self._tenants:
            tenant, queue = next(iter(self._tenants.items()))
            queued = queue[0]
            if batch and queued.job.output != batch[0][0].job.output:
                break
            taken = _fitting(queued, num_left, at_least=0 if batch else 1)
            if not taken:
                break
            num_tokens = sum(len(queued.job.texts[number].token_ids) for number in taken)
            num_left -= num_tokens
            queued.turn_tokens += num_tokens
            queued.num_taken = taken.stop
            batch.append((queued, taken))
            if queued.is_taken or queued.turn_tokens >= self._max_batch_tokens:
                self._end_turn(tenant, queue)
        assert batch
        return batch

    def _end_turn(self, tenant: str, queue: deque[Q]) -> None:
        queued = queue.popleft()
        queued.turn_tokens = 0
        if not queued.is_taken:
            queue.append(queued)
        del self._tenants[tenant]
        if queue:
            self._tenants[tenant] = queue


def _fitting(queued: QueuedJob, num_left: int, *, at_least: int) -> range:
    """Returns as many of a job's next texts as have room."""
    first = end = queued.num_taken
    texts = queued.job.texts
    while end < len(texts):
        num_left -= len(texts[end].token_ids)
        if num_left < 0 and end - first >= at_least:
            break
        end += 1
    return range(first, end)
