"""GGUF files whose layers, embedding and output layer lie in blocks, on the native core: beside the
dequantized weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import VOCAB_SIZE, variant
from paredown.compress.activations import round_inputs
from paredown.compress.convert.gguf_mixture import GGUFFormats
from paredown.compress.convert.write_gguf import write_gguf
from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.native.memory_plan import plan_memory
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.gguf.block_format import BlockFormat
from paredown.formats.gguf.table import BLOCK_FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.gguf.vocabulary import GGUFVocabulary
from paredown.models.roles import linear_places
from paredown.spec.kv import KVSpec
from references.blocks import KINDS, random_rows

IDS = np.random.default_rng(1).integers(0, VOCAB_SIZE, 24).tolist()
BLOCKED = sorted(KINDS)


def made_up(kind: str) -> BlockFormat:
    """The format, which makes any blocks of a weight, of about the size that weights have."""
    block = BLOCK_FORMATS[kind.upper()]

    def quantize(values_OI: np.ndarray) -> object:
        rows = random_rows(np.random.default_rng(values_OI.size), kind, *values_OI.shape)
        blocks = rows.reshape(-1, block.block_bytes)
        spread = block.decode(rows).dequantize().std()
        for start in KINDS[kind].halves:
            halves = blocks[:, start : start + 2].copy().view(np.float16)
            halves *= np.float16(0.1 / spread)
            blocks[:, start : start + 2] = halves.view(np.uint8)
        return block.decode(rows)

    return replace(block, quantize=quantize)


def write(folder: Path, kind: str, *, is_tied: bool) -> Checkpoint:
    variant("llama", hidden_size=256, intermediate_size=512, tie_word_embeddings=is_tied)(
        folder / "source", torch.float32, 0
    )
    block = made_up(kind)
    write_gguf(
        Checkpoint.open(folder / "source"),
        folder / "model.gguf",
        formats=GGUFFormats(linear=block, output=block, embedding=block),
        vocabulary=GGUFVocabulary(metadata={}),
    )
    return Checkpoint.open(folder / "model.gguf")


def native_logits(executor: LoadedExecutor) -> np.ndarray:
    pages = list(range(executor.num_pages))
    return executor.step(
        [SequenceSlice(token_ids=IDS, start=0, pages=pages, num_logits=len(IDS))]
    ).copy()


def decoder_logits(checkpoint: Checkpoint) -> np.ndarray:
    """The dequantized weights in float32, whose layers read int8 inputs."""
    decoder = Decoder.from_checkpoint(checkpoint)
    specs = checkpoint.weight_specs()
    for role, layer in linear_places(checkpoint.spec):
        name = checkpoint.linear_name(role, layer)
        round_inputs(decoder.layers[layer].get_submodule(role), specs[name], None)
    if not checkpoint.spec.is_tied:
        round_inputs(decoder.output, specs[checkpoint.names.output], None)
    with torch.no_grad():
        return decoder(torch.tensor([IDS]))[0].numpy()


@pytest.mark.parametrize("kind", BLOCKED)
@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
def test_logits_are_those_of_dequantized_weights_with_rounded_inputs(
    kind: str, is_tied: bool, tmp_path: Path
) -> None:
    checkpoint = write(tmp_path, kind, is_tied=is_tied)
    assert {one.dtype for one in checkpoint.weight_specs().values()} == {kind}
    found = native_logits(load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype="fp32")))
    expected = decoder_logits(checkpoint)
    # A code of an input falls to the other side now and then: sums are in another order.
    error = np.sqrt(np.mean((found - expected) ** 2)) / expected.std()
    assert error < (0.08 if is_tied else 0.03)  # a tied output layer of the decoder reads floats


@pytest.mark.parametrize("kind", BLOCKED)
@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
def test_memory_is_planned_and_packed_weights_come_back(
    kind: str, is_tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    checkpoint = write(tmp_path, kind, is_tied=is_tied)
    plan = plan_memory(checkpoint, KVSpec(num_pages=8), 1)
    options = RunOptions(num_pages=8, cache=CacheConfig(min_bytes=0))
    first = load_executor(checkpoint, options)
    assert plan.weight_bytes == pytest.approx(first.weight_bytes, rel=0.15)
    first.wait_for_cache()
    second = load_executor(Checkpoint.open(tmp_path / "model.gguf"), options)
    assert (first.weights_from, second.weights_from) == ("checkpoint", "cache")
    np.testing.assert_array_equal(native_logits(first), native_logits(second))
