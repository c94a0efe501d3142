"""Steps of the torch executor: what they leave in pages, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from drivers.devices import DEVICES
from fakes.native_twin import random_decoder
from fakes.torch_twin import torch_twin
from fakes.unequal_layers import unequal_spec
from paredown.executors.protocol import SequenceSlice
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.device import Device
from paredown.spec.kv import KVSpec

VOCAB_SIZE = 61
SPEC = unequal_spec(vocab_size=VOCAB_SIZE)
DECODER = random_decoder(SPEC)
KV = KVSpec(num_pages=12)
TEXT = np.random.default_rng(3).integers(0, VOCAB_SIZE, 50).tolist()
PAGES = [7, 2, 11, 0]


def whole(num_logits: int = 1) -> SequenceSlice:
    return SequenceSlice(TEXT, 0, PAGES, num_logits)


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_again_is_a_step_with_what_comes_next(device: Device) -> None:
    executor = torch_twin(random_decoder(SPEC), KV, device=device)
    pages = [5]
    executor.step([SequenceSlice([1], 0, PAGES, 1), SequenceSlice([2] * 15, 0, pages, 1)])
    steps = [SequenceSlice([4], 1, PAGES, 1), SequenceSlice([3], 15, pages, 1)]
    executor.step(steps)
    for part in steps:
        part.token_ids, part.start = [60], 40  # whoever made a slice may use it again
    pages.append(6)
    found = executor.step_again([8, 9])
    expected = executor.step([SequenceSlice([8], 2, PAGES, 1), SequenceSlice([9], 16, pages, 1)])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_has_the_same_bits_in_any_chunks(device: Device) -> None:
    """Those of experts too, to whom few rows of a step are sent, or one."""
    executor = torch_twin(random_decoder(SPEC), KV, device=device)
    expected = executor.step([whole(50)])
    for lengths in ([1] * 50, [2, 1, 13, 20, 5, 9], [33, 17]):
        start, rows = 0, []
        for length in lengths:
            chunk = TEXT[start : start + length]
            rows.append(executor.step([SequenceSlice(chunk, start, PAGES, length)]))
            start += length
        assert np.array_equal(np.concatenate(rows), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_copied_pages_hold_what_the_first_ones_do(device: Device) -> None:
    executor = torch_twin(random_decoder(SPEC), KV, device=device)
    executor.step([whole()])
    executor.copy_pages([(7, 1), (1, 3), (2, 4), (11, 5), (0, 6)])
    nexts = [SequenceSlice([9], 50, pages, 1) for pages in (PAGES, [3, 4, 5, 6])]
    one, other = executor.step(nexts)
    assert np.array_equal(one, other)


@pytest.mark.parametrize("device", DEVICES)
def test_what_others_left_in_a_page_is_not_seen(device: Device) -> None:
    """Not even numbers that are none, which 0 times them would be, too."""
    executor = torch_twin(random_decoder(SPEC), KV, device=device)
    expected = executor.step([whole(50)])
    for keys, values in executor._pages._layers:
        keys.fill_(torch.nan)
        values.fill_(1e30)
    assert np.array_equal(executor.step([whole(50)]), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_that_fails_says_so_and_leaves_finite_values(device: Device) -> None:
    decoder = random_decoder(SPEC)
    decoder.embedding.weight[5] = torch.inf
    executor = torch_twin(decoder, KV, device=device)
    failed = SequenceSlice([1, 5, 1], 0, [3], 3)
    healthy = [SequenceSlice([1, 2, 1], 0, [page], 3) for page in (4, 3)]
    logits = executor.step([failed, healthy[0]])
    assert np.isfinite(logits[0]).all()
    assert not np.isfinite(logits[1]).any()
    assert np.array_equal(executor.step([healthy[1]]), logits[3:])


@pytest.mark.parametrize("device", DEVICES)
def test_weights_are_shared_and_pages_are_not(device: Device) -> None:
    executor = torch_twin(random_decoder(SPEC), KV, device=device)
    expected = executor.step([whole()])
    other = executor.sharing_weights(KVSpec(num_pages=12, dtype="bf16"))
    other.step([SequenceSlice([1] * 50, 0, PAGES, 1)])
    nexts = SequenceSlice([9], 50, PAGES, 1)
    assert not np.array_equal(other.step([nexts]), executor.step([nexts]))
    assert np.array_equal(other.step([whole()]), expected)


def test_sinks_are_kept_or_left_behind() -> None:
    spec = replace(SPEC, layers=tuple(one for one in SPEC.layers if one.attention.rotary))
    sinks = AttentionSinks(num_sink_tokens=2, window=5)
    executor = torch_twin(random_decoder(spec), KV, sinks=sinks)
    assert executor.sharing_weights(KV).context.sinks == sinks
    plain = executor.sharing_weights(KV, keeps_sinks=False)
    assert plain.context.sinks is None
    assert not np.array_equal(plain.step([whole()]), executor.step([whole()]))


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_of_nothing_gives_no_rows(device: Device) -> None:
    executor = torch_twin(random_decoder(SPEC), KV, device=device)
    assert executor.step([]).shape == (0, VOCAB_SIZE)
    assert executor.step([whole(0)]).shape == (0, VOCAB_SIZE)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (SequenceSlice([VOCAB_SIZE], 0, [0], 1), "outside the vocabulary"),
        (SequenceSlice([-1], 0, [0], 1), "outside the vocabulary"),
        (SequenceSlice([], 0, [0], 0), "leaves the context"),
        (SequenceSlice([1], -1, [0], 1), "leaves the context"),
        (SequenceSlice([1], SPEC.max_positions, list(range(12)) * 99, 1), "leaves the context"),
        (SequenceSlice([1], 0, [0], 2), "num_logits"),
        (SequenceSlice([1], 0, [0], -1), "num_logits"),
        (SequenceSlice([1], 16, [0], 1), "too few pages"),
        (SequenceSlice([1], 0, [12], 1), "unknown"),
        (SequenceSlice([1], 0, [-1], 1), "unknown"),
    ],
)
def test_a_wrong_slice_is_refused_and_nothing_is_computed(
    part: SequenceSlice, message: str
) -> None:
    executor = torch_twin(DECODER, KV)
    executor.step([whole()])
    with pytest.raises(ValueError, match=message):
        executor.step([SequenceSlice([1] * 50, 0, PAGES, 1), part])
    nexts = SequenceSlice([9], 50, PAGES, 1)
    found = executor.step([nexts])
    executor.step([whole()])
    assert np.array_equal(executor.step([nexts]), found)


@pytest.mark.parametrize("pair", [(0, 12), (-1, 0)])
def test_a_page_that_is_not_there_is_not_copied(pair: tuple[int, int]) -> None:
    executor = torch_twin(DECODER, KV)
    executor.step([whole()])
    with pytest.raises(ValueError, match="unknown"):
        executor.copy_pages([(5, 7), pair])
    nexts = SequenceSlice([9], 50, PAGES, 1)
    found = executor.step([nexts])
    executor.step([whole()])
    assert np.array_equal(executor.step([nexts]), found)
