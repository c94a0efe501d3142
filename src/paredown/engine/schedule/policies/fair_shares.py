"""Fair shares between tenants: the Virtual Token Counter (Sheng et al., Fairness in Serving Large
Language Models, OSDI 2024, algorithm 2). The next request comes from the tenant that has been
served least; the policy decides among a tenant's own.

Bound (theorem 4.3 there): between two tenants that have requests waiting all the time, the service
differs by at most 2 * max(longest prompt, GENERATED_WEIGHT * tokens that fit in all pages).
"""

from collections.abc import Callable, Iterator
from itertools import chain

from paredown.engine.request import Request
from paredown.engine.schedule.waiting_queue import WaitingQueue

# Weight of a generated token, as in the paper; a prompt token counts 1.
GENERATED_WEIGHT = 2
_MAX_IDLE_TENANTS = 1024


class FairShares:
    """Implements WaitingQueue over one queue per tenant. Tokens found in the prefix cache cost
    nothing."""

    def __init__(self, make_queue: Callable[[], WaitingQueue]) -> None:
        self._make_queue = make_queue
        self._queues: dict[str, WaitingQueue] = {}
        # Service received by tenant; a tenant that is missing has received `_level`.
        self._served: dict[str, float] = {}
        self._level = 0.0
        self._last_tenant = ""
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self._queues.values())

    def push(self, request: Request) -> None:
        tenant = request.service.tenant
        queue = self._queues.get(tenant)
        if queue is None:
            self._join(tenant)
            queue = self._queues[tenant] = self._make_queue()
        queue.push(request)
        self._num_waiting += 1

    def first(self) -> Request:
        return self._queues[min(self._queues, key=self._served.__getitem__)].first()

    def remove(self, request: Request) -> None:
        tenant = request.service.tenant
        queue = self._queues[tenant]
        queue.remove(request)
        self._num_waiting -= 1
        if not queue:
            del self._queues[tenant]
            self._last_tenant = tenant

    def charge(self, request: Request, num_tokens: int) -> None:
        """Records that `num_tokens` more tokens of the request were computed."""
        is_generated = request.num_computed_tokens > request.num_prompt_tokens
        cost = num_tokens * GENERATED_WEIGHT if is_generated else num_tokens
        tenant = request.service.tenant
        self._served[tenant] = self._served.get(tenant, self._level) + cost

    def served(self, tenant: str) -> float:
        """Returns the weighted tokens served. An absent tenant earns no credit for that time."""
        return self._served.get(tenant, self._level)

    def _join(self, tenant: str) -> None:
        """Adds a tenant when its first request waits. It starts at the least served of the others,
        or at the last tenant that left."""
        others = self._queues or (self._last_tenant,)
        self._level = max(self._level, min(map(self.served, others)))
        self._served[tenant] = max(self._level, self.served(tenant))
        if len(self._served) > _MAX_IDLE_TENANTS + 2 * len(self._queues):
            self._served = {
                one: served
                for one, served in self._served.items()
                if served > self._level or one in self._queues or one == tenant
            }
