"""What is asked of an engine that answers many requests at once, as fast as it can."""

from pathlib import Path
from typing import Protocol

from benchmarks.checkpoints.cache import Variant
from benchmarks.peers.peer import LoadOptions

# A prompt, and how many tokens are to follow it.
Job = tuple[list[int], int]


class OfflinePeer(Protocol):
    """Runs in a process of its own."""

    def load(self, root: Path, variant: Variant, options: LoadOptions, trial: list[Job]) -> None:
        """Opens a model for so many requests of at most so many tokens each; `trial` is what
        settings are tried with."""
        ...

    def answer(self, jobs: list[Job]) -> float:
        """Seconds until the last of them has all its tokens; each is there from the start."""
        ...

    def settings(self) -> dict[str, str]:
        """What was chosen, and what was tried for it."""
        ...

    def close(self) -> None:
        """Frees the model."""
        ...
