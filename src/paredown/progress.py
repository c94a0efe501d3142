"""Callbacks by which long work reports its progress."""

from collections.abc import Callable

# Called with the current activity and the share of the whole that is done.
OnProgress = Callable[[str, float], None]
# Called with the number of steps that are done, and their total.
OnCount = Callable[[int, int], None]
# Below this share, the remaining time is a guess.
_KNOWN_SHARE = 0.02


def time_left(elapsed_s: float, share: float) -> float | None:
    """Returns the remaining seconds if the rest proceeds at the same rate; None while too little is
    done to tell."""
    return None if share < _KNOWN_SHARE else elapsed_s * max(0.0, 1 - share) / share
