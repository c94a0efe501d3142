"""Tiles: where the tokens of a step stand, for a CPU and for a GPU."""

import random

import pytest
import torch

from paredown.executors.protocol import SequenceSlice
from paredown.executors.torch import tiles
from paredown.executors.torch.tiles import TILE_FORMS, TileForm, Tiles
from paredown.spec.device import Device

GPU = TILE_FORMS["cuda"]


def random_slices(seed: int) -> list[SequenceSlice]:
    rng, slices, page = random.Random(seed), list[SequenceSlice](), 0
    for _ in range(rng.randint(1, 9)):
        start, length = rng.randint(0, 50), rng.choice([1, 1, 2, 17, 40])
        num_pages = -(-(start + length) // 16)
        token_ids = [rng.randint(0, 99) for _ in range(length)]
        held = list(range(page, page + num_pages))
        slices.append(SequenceSlice(token_ids, start, held, rng.randint(0, length)))
        page += num_pages
    return slices


@pytest.mark.parametrize("form", TILE_FORMS.values(), ids=TILE_FORMS)
@pytest.mark.parametrize("seed", range(20))
def test_every_token_stands_once_where_its_queries_and_logits_find_it(
    form: TileForm, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device: Device = "cpu"
    monkeypatch.setitem(tiles.TILE_FORMS, device, form)
    slices = random_slices(seed)
    found = Tiles.of(slices, 0, device)
    rows = found.rows_R.tolist()
    assert len(set(rows)) == len(rows) == sum(len(part.token_ids) for part in slices)
    assert found.token_ids_TS.shape[1] == form.num_rows
    ids, positions = found.token_ids_TS.flatten(), found.positions_TS.flatten()
    queries = torch.cat([page.rows_S for page in found.query_pages])
    wanted, token = list[int](), 0
    for part in slices:
        own = rows[token : token + len(part.token_ids)]
        token += len(own)
        assert ids[own].tolist() == part.token_ids
        assert positions[own].tolist() == [part.start + i for i in range(len(own))]
        wanted += own[len(own) - part.num_logits :]
        for row, position in zip(own, positions[own].tolist(), strict=True):
            place = int(found.queries_TS.flatten()[row])
            assert int(queries[place]) == row
            assert place % 16 == position % 16
            assert found.query_pages[place // 16].sequence is part
            assert found.query_pages[place // 16].page == position // 16
    assert found.wanted == wanted


def test_on_a_cpu_a_place_follows_from_the_position_alone() -> None:
    rows = TILE_FORMS["cpu"].rows_of([0, 1, 17, 16, 32, 5])
    assert [row % 16 for row in rows] == [0, 1, 1, 0, 0, 5]
    assert [row // 16 for row in rows] == [0, 0, 1, 1, 2, 0]


def test_on_a_gpu_requests_at_one_position_share_a_tile() -> None:
    assert GPU.rows_of([40] * 64) == list(range(64))
