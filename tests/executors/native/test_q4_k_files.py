"""GGUF files in Q4_K on the native core: beside the dequantized weights, and from the cache."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from fakes.q4_k_file import Q8_TABLES, WRITTEN, write_q4_k
from fakes.tiny_models import VOCAB_SIZE
from paredown.compress.activations import round_inputs
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import ConfigError
from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.native.memory_plan import plan_memory
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.block_weight import BlockWeight
from paredown.formats.gguf.floats import F32
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.gguf.file import read_gguf
from paredown.models.gguf.vocabulary import GGUFVocabulary
from paredown.models.roles import linear_places
from paredown.spec.kv import KVSpec

IDS = np.random.default_rng(1).integers(0, VOCAB_SIZE, 40).tolist()


def native_logits(executor: NativeExecutor, chunks: tuple[int, ...] = (40,)) -> np.ndarray:
    pages, start, logits = list(range(executor.num_pages)), 0, []
    for size in chunks:
        ids = IDS[start : start + size]
        one = SequenceSlice(token_ids=ids, start=start, pages=pages, num_logits=size)
        logits.append(executor.step([one]).copy())
        start += size
    return np.concatenate(logits)


def decoder_logits(checkpoint: Checkpoint, *, rounds_inputs: bool) -> np.ndarray:
    """The dequantized weights in float32; with `rounds_inputs` each layer reads int8 inputs."""
    decoder = Decoder.from_checkpoint(checkpoint)
    specs = checkpoint.weight_specs()
    if rounds_inputs:
        for role, layer in linear_places(checkpoint.spec):
            name = checkpoint.linear_name(role, layer)
            round_inputs(decoder.layers[layer].get_submodule(role), specs[name], None)
        round_inputs(decoder.output, specs[checkpoint.names.output], None)
    with torch.no_grad():
        return decoder(torch.tensor([IDS]))[0].numpy()


@pytest.mark.parametrize("isa", supported_isas())
def test_logits_are_those_of_dequantized_weights_with_rounded_inputs(
    isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    checkpoint = Checkpoint.open(write_q4_k(tmp_path, is_tied=False, tables=F32))
    assert checkpoint.notes == ()
    found = native_logits(load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype="fp32")))
    rounded = decoder_logits(checkpoint, rounds_inputs=True)
    plain = decoder_logits(checkpoint, rounds_inputs=False)
    of_rounding = distance(rounded, plain)
    assert of_rounding < 0.12
    assert distance(found, plain) < 1.05 * of_rounding
    # A code of an input falls to the other side now and then: sums are in another order.
    assert distance(found, rounded) < 0.15 * of_rounding


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """Root of the mean square, in the spread of the logits."""
    return float(np.sqrt(np.mean((found - expected) ** 2)) / expected.std())


@pytest.mark.parametrize("isa", supported_isas())
def test_any_chunks_give_the_same_bits(
    isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    executor = load_executor(Checkpoint.open(write_q4_k(tmp_path)), RunOptions(num_pages=8))
    whole = native_logits(executor)
    for chunks in ((1,) * 40, (3, 17, 20), (39, 1)):
        np.testing.assert_array_equal(native_logits(executor, chunks), whole)


@pytest.mark.parametrize("is_tied", [True, False])
def test_the_plan_is_what_the_core_holds(is_tied: bool, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_q4_k(tmp_path, is_tied=is_tied))
    plan = plan_memory(checkpoint, KVSpec(num_pages=8), 1)
    executor = load_executor(checkpoint, RunOptions(num_pages=8))
    assert plan.weight_bytes == pytest.approx(executor.weight_bytes, rel=0.15)
    of_table = VOCAB_SIZE * checkpoint.spec.hidden_size * 144 // 256
    assert plan.embedding_bytes == (0 if is_tied else of_table)


@pytest.mark.parametrize("tables", [WRITTEN, Q8_TABLES], ids=["Q4_K", "Q8_0"])
def test_packed_weights_come_back_from_the_cache(
    tables: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_q4_k(tmp_path, tables=tables)
    options = RunOptions(num_pages=8, cache=CacheConfig(min_bytes=0))
    first = load_executor(Checkpoint.open(path), options)
    first.wait_for_cache()
    second = load_executor(Checkpoint.open(path), options)
    assert (first.weights_from, second.weights_from) == ("checkpoint", "cache")
    np.testing.assert_array_equal(native_logits(first), native_logits(second))


def test_the_file_is_what_the_package_reads(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_q4_k(tmp_path))
    stored = {one.name: one for one in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    for layer in range(checkpoint.spec.num_layers):
        weight = checkpoint.linear("down", layer)
        assert isinstance(weight, BlockWeight)
        tensor = stored[f"blk.{layer}.ffn_down.weight"]
        assert tensor.tensor_type.name == "Q4_K"
        theirs = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(weight.dequantize(), theirs)
        chosen = np.array([3, 1, 200])
        np.testing.assert_array_equal(weight.rows(chosen).dequantize(), theirs[chosen])


def test_a_file_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    write_q4_k(tmp_path)
    ours = Checkpoint.open(tmp_path / "model.gguf")
    assert ours.linear("q", 0).spec.name == "q4_k"
    result = write_gguf(ours, tmp_path / "again.gguf", vocabulary=GGUFVocabulary(metadata={}))
    first, again = read_gguf(tmp_path / "model.gguf"), read_gguf(tmp_path / "again.gguf")
    assert first.places == again.places
    for name in first.places:
        np.testing.assert_array_equal(first.rows(name), again.rows(name))
    assert result.formats["Q4_K"] == 1 + 2 * 7


def test_other_activations_are_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_q4_k(tmp_path))
    with pytest.raises(ConfigError, match="q4_k weights cannot be multiplied"):
        load_executor(checkpoint, RunOptions(num_pages=8, activations="int8_row"))
