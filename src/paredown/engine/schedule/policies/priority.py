"""Priority with linear aging: each level of priority is worth a fixed waiting time.

All requests age alike, so their order never changes while they wait and a heap is enough.

Bound: a request of priority p is overtaken only by requests that arrive less than
(MAX_PRIORITY - p) * LEVEL_S after it.
"""

from paredown.engine.request import Request

# Longer than a queue usually holds a request.
LEVEL_S = 10.0


def priority(request: Request) -> float:
    """Returns the arrival time at which a request of priority 0 would have the same rank."""
    return request.arrival_s - request.service.priority * LEVEL_S
