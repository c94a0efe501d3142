"""RewardLog: the rewards of a run, step by step, since it was started or resumed."""

from collections.abc import Sequence

# The beginning and the end of a run whose means are told.
_SHARE = 0.1


class RewardLog:
    """Keeps the mean reward of each step, in their order. Steps with rewards count from 0, so a
    later first one tells that the run was resumed; no saved state has the rewards before it."""

    def __init__(self) -> None:
        self._means = list[float]()
        self._first_step = 0

    def add(self, step: int, rewards: Sequence[float]) -> None:
        if not self._means:
            self._first_step = step
        self._means.append(sum(rewards) / len(rewards))

    def notes(self) -> tuple[str, ...]:
        """Returns how the rewards went, in words."""
        if not self._means:
            return ()
        count = max(1, round(_SHARE * len(self._means)))
        first, last = (sum(part) / count for part in (self._means[:count], self._means[-count:]))
        steps = "step" if count == 1 else f"{count} steps"
        since = " since the run was resumed" if self._first_step else ""
        return (
            f"mean reward from {first:.4g} in the first {steps} to {last:.4g} in the last, of "
            f"{len(self._means)} steps with rewards{since}",
        )
