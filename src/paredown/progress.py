"""How long work tells how far it is."""

from collections.abc import Callable

# Called with what is being done and the share of the whole that is done.
OnProgress = Callable[[str, float], None]
# Called with how many steps are done and how many there are.
OnCount = Callable[[int, int], None]
