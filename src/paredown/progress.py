"""How long work tells how far it is."""

from collections.abc import Callable

# Called with what is being done and the share of the whole that is done.
OnProgress = Callable[[str, float], None]
# Called with how many steps are done and how many there are.
OnCount = Callable[[int, int], None]
# Before that much is done, what is left is a guess.
_KNOWN_SHARE = 0.02


def time_left(elapsed_s: float, share: float) -> float | None:
    """Seconds until all is done if the rest takes as long per share as what is done; None while
    too little is done to tell."""
    return None if share < _KNOWN_SHARE else elapsed_s * max(0.0, 1 - share) / share
