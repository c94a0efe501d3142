"""Peers: processes that train one student together, each on its share of every step's rows.

Losses, targets and gradients are added up over all processes before a step moves the weights, so a
step is the same as in one process that reads all its rows. Processes talk through
torch.distributed (gloo), as `torchrun` starts them.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, distributed

from paredown.distill.batch import Batch
from paredown.errors import ConfigError

_NUMBER, _RANK = "WORLD_SIZE", "RANK"
_FIRST = 0
_REMEDY = "Start all of them with `torchrun` (docs/guide/distill.md)."
Shared = TypeVar("Shared")


class Peers:
    """The default process group. It must be there."""

    def __init__(self) -> None:
        self.rank = distributed.get_rank()
        self.number = distributed.get_world_size()

    @property
    def is_first(self) -> bool:
        """Whether this process writes what is written."""
        return self.rank == _FIRST

    def check(self, step_rows: int) -> None:
        """Raises ConfigError for steps that cannot be shared out evenly."""
        if step_rows % self.number:
            raise ConfigError(
                "the rows of a step cannot be shared out evenly over the processes",
                seen=f"{step_rows} rows, {self.number} processes",
                remedy="Give steps (--batch-tokens) of a multiple of as many rows.",
            )

    def own(self, batch: Batch) -> Batch:
        """Returns this process's share of a step's rows."""
        return batch.split(len(batch.inputs_BT) // self.number)[self.rank]

    def sum(self, values: Sequence[float]) -> list[float]:
        """Returns each number added up over all processes."""
        together = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(together)
        found: list[float] = together.tolist()
        return found

    def add_up(self, gradients: Sequence[Tensor]) -> None:
        """Adds up each tensor over all processes, in place."""
        for gradient in gradients:
            distributed.all_reduce(gradient)

    def agreed(self, value: float) -> float:
        """Returns the first process's number, so that clocks do not part the processes."""
        given = torch.tensor([value], dtype=torch.float64)
        distributed.broadcast(given, _FIRST)
        return float(given)

    def share(self, value: Shared | None) -> Shared:
        """Returns the first process's value in all of them; what the others give is not read."""
        given = [value]
        distributed.broadcast_object_list(given, _FIRST)
        (found,) = given
        assert found is not None
        return found


def is_helper() -> bool:
    """Returns whether this process was started to help another one, which writes and tells."""
    return _variable(_NUMBER, "1") > 1 and _variable(_RANK, "0") != _FIRST


@contextmanager
def joined_peers() -> Iterator[Peers | None]:
    """Yields the processes that this one was started with (by `torchrun`); None where it is alone.
    Raises ConfigError where they do not find each other."""
    if _variable(_NUMBER, "1") < 2:
        yield None
        return
    try:
        distributed.init_process_group("gloo")
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            "the processes that train together do not find each other", seen=error, remedy=_REMEDY
        ) from error
    try:
        yield Peers()
    finally:
        distributed.destroy_process_group()


def _variable(name: str, default: str) -> int:
    given = os.environ.get(name, default)
    if not given.isdecimal():
        raise ConfigError(f"{name} in the environment is no number", seen=given, remedy=_REMEDY)
    return int(given)
