"""Steps are shared out evenly, and a process alone has nobody to share with. That two processes
train as one does is tested with the whole job (tests/jobs/test_distill.py)."""

import numpy as np
import pytest

from drivers.tiny_training import random_rows
from paredown.distill.peers import Peers, is_helper, joined_peers
from paredown.errors import ConfigError


def test_a_process_alone_has_no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (None, "1"):
        if number is not None:
            monkeypatch.setenv("WORLD_SIZE", number)
        with joined_peers() as peers:
            assert peers is None


def test_rows_that_cannot_be_shared_out_are_refused() -> None:
    peers = object.__new__(Peers)
    peers.rank, peers.number = 1, 3
    peers.check(6)
    with pytest.raises(ConfigError, match="4 rows, 3 processes"):
        peers.check(4)
    batch = random_rows(6, 8).batch(np.arange(6))
    assert (peers.own(batch).inputs_BT == batch.inputs_BT[2:4]).all()


@pytest.mark.parametrize(
    ("number", "rank", "helps"), [("1", "1", False), ("2", "0", False), ("2", "1", True)]
)
def test_all_but_the_first_of_several_help(
    number: str, rank: str, helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", number)
    monkeypatch.setenv("RANK", rank)
    assert is_helper() == helps


def test_processes_that_do_not_find_each_other_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="torchrun"), joined_peers():
        pass
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match="WORLD_SIZE"), joined_peers():
        pass
