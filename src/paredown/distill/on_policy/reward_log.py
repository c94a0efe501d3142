"""RewardLog: the rewards of a run, step by step."""

from collections.abc import Sequence

# The beginning and the end of a run whose means are told.
_SHARE = 0.1


class RewardLog:
    """Keeps the mean reward of each step, in their order."""

    def __init__(self) -> None:
        self._means = list[float]()

    def add(self, step: int, rewards: Sequence[float]) -> None:
        self._means.append(sum(rewards) / len(rewards))

    def notes(self) -> tuple[str, ...]:
        """Returns how the rewards went, in words."""
        if not self._means:
            return ()
        count = max(1, round(_SHARE * len(self._means)))
        first, last = (sum(part) / count for part in (self._means[:count], self._means[-count:]))
        steps = "step" if count == 1 else f"{count} steps"
        return (
            f"mean reward from {first:.4g} in the first {steps} to {last:.4g} in the last, of "
            f"{len(self._means)} steps with rewards",
        )
