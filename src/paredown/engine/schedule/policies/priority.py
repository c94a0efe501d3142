"""Priority with linear aging: a level of priority is worth a time of waiting.

Everybody ages alike, so who is before whom never changes while they wait, and a heap will do.

Bound: a request of priority p is overtaken only by requests that arrive less than
(MAX_PRIORITY - p) * LEVEL_S after it.
"""

from paredown.engine.request import Request

# Larger than the time that a queue usually holds a request.
LEVEL_S = 10.0


def priority(request: Request) -> float:
    """When a request of priority 0 would have come to be served at the same time."""
    return request.arrival_s - request.service.priority * LEVEL_S
