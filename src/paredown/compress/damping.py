"""Damping of a layer's Hessian: a share of its mean diagonal that is added to the diagonal."""

from collections.abc import Iterator

from paredown.errors import ConfigError

MOST_DAMP = 1.0
# A Hessian that cannot be factored gets this many times more damping each time, up to its mean
# diagonal.
_GROWTH = 10.0
_LEAST_GROWN = 0.01


def check_damp(method: str, damp: float) -> None:
    """Raises ConfigError for a `damp` outside of 0 to 1."""
    if not 0 <= damp <= MOST_DAMP:
        raise ConfigError(
            f"{method}'s damp is a share of the mean diagonal of the Hessian",
            seen=damp,
            remedy=f"Choose a number from 0 to {MOST_DAMP:g}; 0.01 is usual.",
        )


def rising_damps(damp: float) -> Iterator[float]:
    """Yields `damp`, and then ever larger ones to try where it does not suffice."""
    while damp <= MOST_DAMP:
        yield damp
        damp = max(damp * _GROWTH, _LEAST_GROWN)


def grown_damp(asked: float, used: float) -> str:
    """Returns the note on a Hessian that needed more damping."""
    return f"damp grew from {asked:g} to {used:g}"
