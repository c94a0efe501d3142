"""Texts longer than their window on the torch executor, with sinks and without: it agrees with the
decoder, and every row has the same bits however it is computed and whatever pages are gone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.devices import DEVICES, TOLERANCE
from drivers.streamed_text import run_streamed
from fakes.native_twin import random_decoder
from fakes.random_executor import TINY
from fakes.specs import changed, context_of
from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, VOCAB_SIZE
from fakes.torch_twin import torch_twin
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context
from paredown.spec.device import Device
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import KVDType, KVSpec


def tokens(length: int, vocab_size: int) -> list[int]:
    return np.random.default_rng(2).integers(0, vocab_size, length).tolist()


def options(device: Device, num_pages: int, sinks: AttentionSinks | None = None) -> RunOptions:
    return RunOptions(
        executor="torch",
        device=device,
        num_pages=num_pages,
        kv_dtype="fp32",
        threads=ThreadPlan.resolve(1),
        sinks=sinks,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["llama-gqa", "llama-rope-llama3", "qwen3", "gpt-neox", "gemma2"])
def test_sinks_agree_with_the_decoder_beyond_the_context(
    name: str, device: Device, tmp_path: Path
) -> None:
    write = (VARIANTS | DECODER_VARIANTS)[name]
    write(tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    limit = min((checkpoint.spec.max_positions, *checkpoint.spec.windows))
    sinks = AttentionSinks(num_sink_tokens=min(5, limit - 1), window=min(40, limit - 5))
    token_ids = tokens(2 * checkpoint.spec.max_positions, VOCAB_SIZE)
    expected = Decoder.from_checkpoint(checkpoint, sinks)(torch.tensor([token_ids]))[0].numpy()
    executor = load_executor(checkpoint, options(device, 8, sinks))
    found = run_streamed(executor, token_ids, [33])
    assert np.abs(found - expected).max() <= TOLERANCE[device] * np.abs(expected).max()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "name", ["qwen2-window", "qwen2-mixed", "qwen3-mixed", "mistral-window", "gemma2"]
)
def test_windows_agree_with_the_decoder(name: str, device: Device, tmp_path: Path) -> None:
    (VARIANTS | DECODER_VARIANTS)[name](tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    token_ids = tokens(checkpoint.spec.max_positions, VOCAB_SIZE)
    expected = Decoder.from_checkpoint(checkpoint)(torch.tensor([token_ids]))[0].numpy()
    keeps_all = Context(spec=checkpoint.spec).kept_window is None
    num_pages = -(-len(token_ids) // 16) if keeps_all else 4
    found = run_streamed(load_executor(checkpoint, options(device, num_pages)), token_ids, [16])
    assert np.abs(found - expected).max() <= TOLERANCE[device] * np.abs(expected).max()


SEEN = {
    "window": context_of(changed(TINY, max_positions=400, sliding_window=75)),
    "sinks": Context(spec=TINY, sinks=AttentionSinks(num_sink_tokens=21, window=75)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kv_dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("name", SEEN)
def test_same_bits_in_any_chunks_though_pages_are_reused(
    name: str, kv_dtype: KVDType, device: Device
) -> None:
    seen, token_ids = SEEN[name], tokens(390, TINY.vocab_size)
    decoder = random_decoder(seen.spec)
    own = KVSpec(num_pages=25, dtype=kv_dtype)
    whole = torch_twin(decoder, own, sinks=seen.sinks, device=device)
    num_pages = KeptPages.of(seen).pages_of(390, 100)
    assert num_pages < 25
    cut = whole.sharing_weights(KVSpec(num_pages=num_pages, dtype=kv_dtype))
    expected = run_streamed(whole, token_ids, [390])
    assert np.isfinite(expected).all()
    assert np.array_equal(run_streamed(cut, token_ids, [100, 7, 1, 1, 64, 33, 1, 97]), expected)


@pytest.mark.parametrize(
    ("context", "start", "num_released", "num_pages"),
    [
        (SEEN["window"], 105, 2, 5),  # the first key of its window is in page 1
        (SEEN["window"], 105, -1, 8),
        (SEEN["sinks"], 122, 2, 6),
        (context_of(TINY), 100, 1, 6),
    ],
)
def test_a_slice_that_sees_released_pages_is_refused(
    context: Context, start: int, num_released: int, num_pages: int
) -> None:
    executor = torch_twin(random_decoder(context.spec), KVSpec(num_pages=8), sinks=context.sinks)
    part = SequenceSlice(
        token_ids=[1],
        start=start,
        pages=list(range(num_pages)),
        num_logits=1,
        num_released_pages=num_released,
    )
    with pytest.raises(ValueError, match="released pages that it sees"):
        executor.step([part])
    with pytest.raises(ValueError, match="too few pages"):
        executor.step([replace(part, pages=[], num_released_pages=0)])
