"""GGUF files on the native core: negative scales, quantized tables, and the packed cache."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.native.memory_plan import plan_memory
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.gguf.vocabulary import GGUFVocabulary
from paredown.spec.kv import KVSpec

IDS = np.random.default_rng(1).integers(0, VOCAB_SIZE, 24).tolist()


def write(folder: Path, variant: str, formats: str) -> Path:
    VARIANTS[variant](folder / "source", torch.float32, 0)
    write_gguf(
        Checkpoint.open(folder / "source"),
        folder / "model.gguf",
        formats=GGUF_FORMATS[formats],
        vocabulary=GGUFVocabulary(metadata={}),
    )
    return folder / "model.gguf"


def native_logits(executor: NativeExecutor) -> np.ndarray:
    pages = list(range(executor.num_pages))
    return executor.step([SequenceSlice(token_ids=IDS, start=0, pages=pages, num_logits=len(IDS))])


@pytest.mark.parametrize("isa", supported_isas())
def test_negative_scales_run_on_every_instruction_set(
    isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    checkpoint = Checkpoint.open(write(tmp_path, "llama-tied", "gguf-q4_0"))
    scales = checkpoint.linear("up", 0).scales_OG
    assert scales is not None
    assert scales.min() < 0 < scales.max()
    check_logits(checkpoint, atol=2e-2)


@pytest.mark.parametrize("formats", ["gguf-q8_0", "gguf-f16"])
@pytest.mark.parametrize("variant", ["llama-tied", "qwen2", "qwen3"])
def test_the_core_runs_a_file_as_the_decoder_does(
    variant: str, formats: str, tmp_path: Path
) -> None:
    checkpoint = Checkpoint.open(write(tmp_path, variant, formats))
    # The decoder's weights are rounded to fp16, the dtype of the scales, the core's are not.
    check_logits(checkpoint, atol=1e-4 if formats == "gguf-f16" else 2e-2)


def check_logits(checkpoint: Checkpoint, atol: float) -> None:
    with torch.no_grad():
        expected = Decoder.from_checkpoint(checkpoint)(torch.tensor([IDS]))[0].numpy()
    exact = load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype="fp32", activations="fp32"))
    spread = expected.std()
    np.testing.assert_allclose(native_logits(exact) / spread, expected / spread, atol=atol)
    rounded = load_executor(checkpoint, RunOptions(num_pages=8, kv_dtype="fp32"))
    # The largest of 7,200 differences falls on both sides of 0.3 with other seeds.
    error = (native_logits(rounded) - expected) / spread
    assert np.sqrt(np.mean(error**2)) < 0.06
    assert np.abs(error).max() < 0.4


@pytest.mark.parametrize("variant", ["llama-tied", "qwen2"])
def test_the_plan_is_what_the_core_holds(variant: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write(tmp_path, variant, "gguf-q8_0"))
    plan = plan_memory(checkpoint, KVSpec(num_pages=8), 1)
    executor = load_executor(checkpoint, RunOptions(num_pages=8))
    assert plan.weight_bytes == pytest.approx(executor.weight_bytes, rel=0.15)
    of_table = int(VOCAB_SIZE * checkpoint.spec.hidden_size * 8.5 / 8)
    assert plan.embedding_bytes == (0 if variant == "llama-tied" else of_table)


@pytest.mark.parametrize("variant", ["llama-tied", "qwen2"])
def test_packed_weights_are_kept_in_the_users_folder_alone(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write(tmp_path, variant, "gguf-q4_0")
    first = load_executor(
        Checkpoint.open(path), RunOptions(num_pages=8, cache=CacheConfig(min_bytes=0))
    )
    first.wait_for_cache()
    second = load_executor(
        Checkpoint.open(path), RunOptions(num_pages=8, cache=CacheConfig(min_bytes=0))
    )
    assert (first.weights_from, second.weights_from) == ("checkpoint", "cache")
    np.testing.assert_array_equal(native_logits(first), native_logits(second))
    assert list((tmp_path / "cache" / "paredown").glob("*.packed"))
    assert not (tmp_path / ".paredown").exists()
