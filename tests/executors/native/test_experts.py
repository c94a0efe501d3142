"""The native core's mixture of experts: against the decoder on quantized checkpoints, what it does
with ties, and what it keeps packed."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fakes.tiny_models import VARIANTS, VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.recipe_file import read_recipe
from paredown.errors import UnsupportedError
from paredown.executors.cache_config import CacheConfig
from paredown.executors.load import load_executor
from paredown.executors.native.native_executor import NativeExecutor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

IDS = np.random.default_rng(3).integers(0, VOCAB_SIZE, 40).tolist()
TOLERANCE = 1e-4


def native_logits(executor: NativeExecutor) -> npt.NDArray[np.float32]:
    pages = list(range(executor.num_pages))
    return executor.step([SequenceSlice(token_ids=IDS, start=0, pages=pages, num_logits=len(IDS))])


def check_agrees_with_decoder(checkpoint: Checkpoint) -> None:
    executor = load_executor(
        checkpoint, RunOptions(num_pages=4, kv_dtype="fp32", activations="fp32")
    )
    with torch.no_grad():
        expected = Decoder.from_checkpoint(checkpoint)(torch.tensor([IDS]))[0].numpy()
    difference = np.abs(native_logits(executor) - expected).max()
    assert difference <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("recipe", ["int8", "int4-g32", "int3-g32-asym", "fp8"])
@pytest.mark.parametrize("name", ["mixtral", "qwen2-moe", "qwen3-moe-dense-first"])
def test_quantized_experts_agree_with_the_decoder(name: str, recipe: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path / "in", torch.float32, 0)
    compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", recipe)
    check_agrees_with_decoder(Checkpoint.open(tmp_path / "out"))


def test_experts_calibrated_with_gptq_agree_with_the_decoder(tmp_path: Path) -> None:
    VARIANTS["qwen2-moe"](tmp_path / "in", torch.float32, 0)
    windows = np.random.default_rng(0).integers(0, VOCAB_SIZE, (4, 32))
    calibration = Calibration(windows_NT=windows, source="random tokens")
    source = Checkpoint.open(tmp_path / "in")
    compress(source, tmp_path / "out", "gptq-int4-g32", calibration=calibration)
    check_agrees_with_decoder(Checkpoint.open(tmp_path / "out"))


def test_gate_and_up_of_different_formats(tmp_path: Path) -> None:
    """They do not merge, and gate * up is computed apart."""
    VARIANTS["qwen2-moe"](tmp_path / "in", torch.float32, 0)
    recipe = tmp_path / "apart.yaml"
    recipe.write_text(
        "steps: [{method: rtn, format: int8, targets: [experts.gate, shared.up]},"
        "{method: rtn, format: int4-g32, targets: [experts.down]}]"
    )
    compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", read_recipe(recipe))
    check_agrees_with_decoder(Checkpoint.open(tmp_path / "out"))


def test_equal_shares_go_to_the_lower_index(tmp_path: Path) -> None:
    """Experts 1 and 2 have one row in the router; only one of the two is chosen, by both."""
    model = make_model("qwen3_moe", torch.float32, 1, num_experts_per_tok=1)
    with torch.no_grad():
        for layer in model.model.layers:
            router = layer.mlp.gate.weight
            router.zero_()
            router[1] = router[2] = torch.randn_like(router[0])
    model.save_pretrained(tmp_path)
    check_agrees_with_decoder(Checkpoint.open(tmp_path))


def test_packed_experts_are_mapped_again(tmp_path: Path) -> None:
    VARIANTS["qwen2-moe-every-second"](tmp_path / "in", torch.bfloat16, 0)
    checkpoint = Checkpoint.open(tmp_path / "in")
    cache = CacheConfig(folder=tmp_path / "cache", min_bytes=0)
    first = load_executor(checkpoint, RunOptions(num_pages=4, cache=cache))
    first.wait_for_cache()
    second = load_executor(checkpoint, RunOptions(num_pages=4, cache=cache))
    assert (first.weights_from, second.weights_from) == ("checkpoint", "cache")
    assert np.array_equal(native_logits(first), native_logits(second))
    assert second.weight_bytes == first.weight_bytes
    third = second.sharing_weights(second.kv)
    assert np.array_equal(native_logits(third), native_logits(second))


def test_experts_whose_size_does_not_fit_the_lanes_are_refused(tmp_path: Path) -> None:
    make_model("qwen3_moe", torch.float32, 0, moe_intermediate_size=40).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedError, match=r"experts.intermediate_size to be a multiple of 16"):
        load_executor(Checkpoint.open(tmp_path), RunOptions(num_pages=4))
