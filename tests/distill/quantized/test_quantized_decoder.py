"""The model that is trained computes what the serving executor computes, and its folder has the
very codes and scales."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.small_tokenizers import byte_level
from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.distill.quantized.quantized_decoder import quantized_decoder, quantized_modules
from paredown.distill.quantized.trained_grids import TrainedGrids
from paredown.distill.quantized.write_quantized import write_quantized
from paredown.errors import UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.files.safetensors_file import read_safetensors

WIDE = {"hidden_size": 128, "intermediate_size": 256}
RECIPES = [
    "int3-g64",
    "int2-g32-asym",
    "int4-g128-on-int16_group",
    "int4-g64-on-bf16",
    "w4a8-kv-int8",
    "w8a8-kv-int4",
    "w8a8-static-kv-int8-static",
    "int8-head-int8-kv-fp8",
    "fp8",
]
# The bounds of tests/executors/native/test_parity.py: for sums in another order alone, and where
# such sums are rounded to bf16, or to coarser keys and values, once more.
TOLERANCE = 2e-3
ROUNDED_TOLERANCE = 0.02
COARSE = {"int4-g64-on-bf16", "w8a8-kv-int4", "w8a8-static-kv-int8-static", "fp8"}


def source(folder: Path, kind: str = "llama", **sizes: object) -> Checkpoint:
    sizes = WIDE if kind == "llama" else sizes
    make_model(kind, torch.bfloat16, 0, **sizes).save_pretrained(folder)
    byte_level().save(str(folder / "tokenizer.json"))
    return Checkpoint.open(folder)


def quantized(folder: Path, recipe: str, kind: str = "llama", **sizes: object) -> Checkpoint:
    tokens = np.random.default_rng(2).integers(0, VOCAB_SIZE, (4, 32))
    calibration = Calibration(windows_NT=tokens, source="random") if "static" in recipe else None
    compress(
        source(folder / "source", kind, **sizes), folder / recipe, recipe, calibration=calibration
    )
    return Checkpoint.open(folder / recipe)


def move(decoder: Decoder) -> None:
    """Changes every weight of the layers as some steps of training would."""
    trained = quantized_modules(decoder)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.startswith("layers.") and not name.endswith("bias"):
                change = 0.05 * parameter.std().nan_to_num(1.0) if parameter.numel() > 1 else 0.05
                parameter += change * torch.randn(parameter.shape, generator=generator)
            if not name.startswith(("layers.", "final_norm.")):
                continue
            is_float = name.removesuffix(".weight").removesuffix(".bias") not in trained
            if is_float and not name.endswith("factors"):  # as it will be stored
                parameter.copy_(parameter.bfloat16())


def native_logits(checkpoint: Checkpoint, ids: list[int]) -> np.ndarray:
    executor = load_executor(checkpoint, RunOptions(num_pages=8, threads=ThreadPlan.resolve(1)))
    part = SequenceSlice(
        token_ids=ids, start=0, pages=list(range(executor.num_pages)), num_logits=len(ids)
    )
    return executor.step([part])


def check(
    start: Checkpoint, output: Path, grids: TrainedGrids, tolerance: float = TOLERANCE
) -> None:
    decoder = quantized_decoder(start, grids)
    move(decoder)
    write_quantized(decoder, start, output)
    written = Checkpoint.open(output)
    for name, module in quantized_modules(decoder).items():
        _, layer, role = name.split(".", 2)
        stored, own = module.stored(), written.linear(role, int(layer))
        assert np.array_equal(own.values_OI, stored.values_OI)
        assert np.array_equal(own.scales_OG, stored.scales_OG)
        assert own.spec == stored.spec
        assert own.input_scale == stored.input_scale
    ids = np.random.default_rng(1).integers(0, VOCAB_SIZE, 40).tolist()
    served = native_logits(written, ids)
    with torch.no_grad():
        trained = decoder(torch.tensor([ids]))[0].numpy()
        again = quantized_decoder(written, TrainedGrids(rule="fixed"))
        assert np.array_equal(again(torch.tensor([ids]))[0].numpy(), trained)
    assert distance(served, trained) <= tolerance
    assert distance(native_logits(start, ids), trained) > 2 * tolerance


def distance(some: np.ndarray, others: np.ndarray) -> float:
    """Root mean square of the difference over that of the others."""
    return float(np.sqrt(np.mean((some - others) ** 2) / np.mean(others**2)))


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_executor_agrees(recipe: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    tolerance = ROUNDED_TOLERANCE if recipe in COARSE else TOLERANCE
    check(quantized(tmp_path, recipe), tmp_path / "out", TrainedGrids(), tolerance)


@pytest.mark.parametrize(
    "grids",
    [TrainedGrids(rule="minmax"), TrainedGrids(rule="fixed"), TrainedGrids(trains_codes=False)],
)
def test_every_rule_agrees(grids: TrainedGrids, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    check(quantized(tmp_path, "int3-g64"), tmp_path / "out", grids)


@pytest.mark.parametrize("kind", ["phi3", "qwen2_moe", "gemma2", "qwen3"])
def test_families_agree(kind: str, tmp_path: Path) -> None:
    """Fused modules, experts with a router beside them, norms after a sum, norms of heads."""
    torch.set_num_threads(1)
    check(quantized(tmp_path, "int4-g32", kind), tmp_path / "out", TrainedGrids())


def test_what_is_not_trained_is_written_as_it_was(tmp_path: Path) -> None:
    start = quantized(tmp_path, "int3-g64-head-int8")
    written = write_quantized(quantized_decoder(start, TrainedGrids()), start, tmp_path / "out")
    assert written.moved_share == 0
    assert dict(written.clamped) == {}
    before, after = (
        dict(read_safetensors(folder / "model.safetensors"))
        for folder in (start.path, tmp_path / "out")
    )
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype
        assert np.array_equal(tensor.array, after[name].array), name
    configs = [
        json.loads((folder / "config.json").read_text())
        for folder in (start.path, tmp_path / "out")
    ]
    assert configs[0] == configs[1]


def test_floats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="needs linear layers in the codes"):
        quantized_decoder(source(tmp_path / "source"), TrainedGrids())
