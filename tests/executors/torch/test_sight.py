"""What a page of queries sees: the keys that the rule of each place names, and no others."""

import pytest
import torch

from drivers.devices import DEVICES
from paredown.executors.protocol import SequenceSlice
from paredown.executors.torch.sight import look, padded
from paredown.executors.torch.tiles import QueryPage
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.device import Device

SINKS = AttentionSinks(num_sink_tokens=20, window=30)
PART = SequenceSlice(token_ids=[1] * 80, start=80, pages=list(range(30, 40)), num_logits=0)


def sees(key: int, place: int, window: int | None, sinks: AttentionSinks | None) -> bool:
    if sinks is not None:
        return key <= place and (place - key < sinks.window or key < sinks.num_sink_tokens)
    return key <= place and (window is None or place - key < window)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("window", "sinks"), [(None, None), (1, None), (33, None), (500, None), (7, SINKS)]
)
def test_every_key_that_a_place_may_see_is_there_once(
    window: int | None, sinks: AttentionSinks | None, device: Device, is_padded: bool
) -> None:
    pages = [
        QueryPage(sequence=PART, page=page, rows_S=torch.arange(16, device=device))
        for page in (5, 9, 7)
    ]
    sights = look(pages, window, sinks, torch.device(device), is_padded=is_padded)
    for queries, sight in zip(pages, sights, strict=True):
        held = [PART.pages.index(page) for page in sight.pages_P.tolist()]
        keys = [page * 16 + place for page in held for place in range(16)]
        num_seen = len(set(held))
        assert held[:num_seen] == sorted(set(held))
        assert len(held) == (padded(num_seen) if is_padded else num_seen)
        for place, hidden in enumerate(sight.hidden_SN.tolist()):
            position = queries.page * 16 + place
            seen = [key for key, is_hidden in zip(keys, hidden, strict=True) if not is_hidden]
            wanted = [key for key in range(160) if sees(key, position, window, sinks)]
            assert seen == wanted


def test_pages_that_were_given_back_are_found_behind_those_of_the_sinks() -> None:
    part = SequenceSlice([1], 130, [4, 7, 5, 9, 8], 1, num_released_pages=4)
    page = QueryPage(sequence=part, page=8, rows_S=torch.arange(16))
    (sight,) = look([page], None, SINKS, torch.device("cpu"))
    # Pages 0 and 1 hold sinks; 2 to 5 are gone; the window of page 8 begins in page 6.
    assert sight.pages_P.tolist() == [4, 7, 5, 9, 8]


def test_hidden_pages_are_at_most_a_third() -> None:
    numbers = [padded(num_pages) for num_pages in range(1, 5000)]
    assert numbers[:13] == [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16]
    assert all(n <= found < 1.5 * n for n, found in enumerate(numbers, 1))
    assert len(set(numbers)) < 26
