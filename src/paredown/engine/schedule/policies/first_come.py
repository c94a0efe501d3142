"""First come, first served: no request is overtaken."""

from paredown.engine.request import Request


def first_come(request: Request) -> float:
    """Returns the same rank for all requests, so that the order of arrival decides."""
    return 0.0
