"""Texts longer than their window on the native executor, with sinks and without: it agrees with the
decoder, and every row has the same bits however it is computed and whatever pages are gone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.streamed_text import run_streamed
from fakes.random_executor import TINY, WEIGHT_SPECS, random_executor
from fakes.specs import changed, context_of
from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.kernels.native_model import planned_step_bytes
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import KV_DTYPES, PAGE_SIZE, KVDType, KVSpec
from paredown.spec.model import ModelSpec


def tokens(length: int, vocab_size: int) -> list[int]:
    return np.random.default_rng(2).integers(0, vocab_size, length).tolist()


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("name", ["llama-gqa", "llama-rope-llama3", "qwen3"])
def test_sinks_agree_with_the_decoder_beyond_the_context(
    name: str, isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    VARIANTS[name](tmp_path, torch.float32, 0)
    sinks = AttentionSinks(num_sink_tokens=5, window=40)
    checkpoint = Checkpoint.open(tmp_path)
    token_ids = tokens(2 * checkpoint.spec.max_positions, VOCAB_SIZE)
    expected = Decoder.from_checkpoint(checkpoint, sinks)(torch.tensor([token_ids]))[0].numpy()
    executor = load_executor(
        checkpoint, RunOptions(num_pages=8, kv_dtype="fp32", activations="fp32", sinks=sinks)
    )
    found = run_streamed(executor, token_ids, [33])
    assert np.abs(found - expected).max() <= 2e-4 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["qwen2-window", "qwen2-mixed", "qwen3-mixed", "mistral-window"])
def test_windows_agree_with_the_decoder(name: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    token_ids = tokens(checkpoint.spec.max_positions, VOCAB_SIZE)
    expected = Decoder.from_checkpoint(checkpoint)(torch.tensor([token_ids]))[0].numpy()
    num_pages = 8 if Context(spec=checkpoint.spec).kept_window is None else 4
    executor = load_executor(
        checkpoint, RunOptions(num_pages=num_pages, kv_dtype="fp32", activations="fp32")
    )
    found = run_streamed(executor, token_ids, [16])
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_angles_of_far_positions_are_exact() -> None:
    """A text that repeats itself looks the same near and far: a row follows from the sinks and,
    over two layers, from twice the window before it."""
    sinks = AttentionSinks(num_sink_tokens=16, window=32)
    executor = random_executor(
        Context(spec=TINY, sinks=sinks), WEIGHT_SPECS["fp32"], num_pages=5, kv_dtype="fp32"
    )
    period, start = tokens(16, TINY.vocab_size), 2**26
    near = run_streamed(executor, period * 12, [16])[-1]
    executor.step([SequenceSlice(token_ids=period, start=0, pages=[0], num_logits=0)])
    for position in range(start, start + 12 * 16, 16):
        first = position // PAGE_SIZE - 2
        part = SequenceSlice(
            token_ids=period,
            start=position,
            pages=[0, *(1 + page % 4 for page in range(first, first + 3))],
            num_logits=1,
            num_released_pages=first - 1,
        )
        far = executor.step([part])[-1]
    assert np.abs(far - near).max() <= 1e-4 * np.abs(near).max()


SEEN = {
    "window": context_of(changed(TINY, max_positions=1200, sliding_window=300)),
    "mixed": context_of(changed(TINY, max_positions=1200, sliding_window=300, full_layers=(1,))),
    "sinks": Context(
        spec=replace(TINY, max_positions=400),
        sinks=AttentionSinks(num_sink_tokens=21, window=300),
    ),
    # More sinks than a block of keys, and a window that is mostly one of another chunk.
    "many sinks": Context(
        spec=replace(TINY, max_positions=1200),
        sinks=AttentionSinks(num_sink_tokens=130, window=600),
    ),
}


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize("name", SEEN)
def test_same_bits_in_any_chunks_and_threads_though_pages_are_reused(
    name: str, kv_dtype: KVDType, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    spec, token_ids, weights = SEEN[name], tokens(1100, TINY.vocab_size), WEIGHT_SPECS["fp32"]
    whole = random_executor(spec, weights, num_pages=69, kv_dtype=kv_dtype)
    num_pages = KeptPages.of(spec).pages_of(1100, 400)
    cut = random_executor(spec, weights, num_pages=num_pages, num_threads=2, kv_dtype=kv_dtype)
    expected = run_streamed(whole, token_ids, [1100])
    assert np.isfinite(expected).all()
    assert np.array_equal(run_streamed(cut, token_ids, [400, 7, 1, 1, 64, 333, 1, 97]), expected)


@pytest.mark.parametrize("steps", [[1], [7], [64]])
@pytest.mark.parametrize("name", ["window", "sinks"])
def test_same_bits_in_small_steps(name: str, steps: list[int]) -> None:
    seen = SEEN[name]
    spec = replace(seen, spec=replace(seen.spec, max_positions=400))
    token_ids = tokens(390, TINY.vocab_size)
    executor = random_executor(spec, WEIGHT_SPECS["int8"], num_pages=25, num_threads=2)
    assert np.array_equal(
        run_streamed(executor, token_ids, steps), run_streamed(executor, token_ids, [390])
    )


@pytest.mark.parametrize(
    ("spec", "start", "num_released", "num_pages"),
    [
        (SEEN["window"], 330, 2, 19),  # the first key of its window is in page 1
        (SEEN["window"], 330, -1, 23),
        (SEEN["sinks"], 380, 4, 20),
        (SEEN["mixed"], 800, 1, 50),  # a layer sees all
        (TINY, 100, 1, 6),
    ],
)
def test_a_slice_that_sees_released_pages_is_refused(
    spec: ModelSpec, start: int, num_released: int, num_pages: int
) -> None:
    executor = random_executor(spec, WEIGHT_SPECS["fp32"], num_pages=64)
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


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_working_memory_stays_within_the_plan(name: str, num_threads: int) -> None:
    spec = SEEN[name]
    executor = random_executor(spec, WEIGHT_SPECS["int8"], num_pages=80, num_threads=num_threads)
    run_streamed(executor, tokens(1100, TINY.vocab_size), [200, 1, 17])
    planned = planned_step_bytes(spec, KVSpec(num_pages=80), num_threads, 200)
    assert executor.step_bytes <= planned
    if num_threads == 1:
        assert executor.step_bytes == planned
