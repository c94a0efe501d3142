"""Earliest deadline first (Liu and Layland 1973).

Bound: a request is overtaken only by requests that arrive before its own deadline.
"""

from paredown.engine.request import Request

# The deadline of a request that names none.
DEFAULT_DEADLINE_S = 60.0


def deadline(request: Request) -> float:
    """Returns the time by which it should start."""
    deadline_s = request.service.deadline_s
    return request.arrival_s + (DEFAULT_DEADLINE_S if deadline_s is None else deadline_s)
