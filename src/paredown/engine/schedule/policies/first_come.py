"""First come, first served: nobody is overtaken."""

from paredown.engine.request import Request


def first_come(request: Request) -> float:
    """All ranks are equal, and the order of arrival decides."""
    return 0.0
