"""Mixtures of experts as they are written: others load them, other formats hold them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.compress_result import CompressResult
from paredown.compress.convert.convert import convert
from paredown.models.checkpoint import Checkpoint

WITH_EXPERTS = ["mixtral", "qwen2-moe", "qwen3-moe-dense-first"]


def compressed(source: Checkpoint, output: Path, recipe: str) -> CompressResult:
    windows = np.random.default_rng(5).integers(0, VOCAB_SIZE, (6, 24))
    calibration = Calibration(windows_NT=windows, source="random tokens")
    return compress(source, output, recipe, calibration=calibration)


@pytest.mark.parametrize(
    ("variant", "recipe"),
    [(variant, "gptq-int4-g32") for variant in WITH_EXPERTS]
    + [("qwen2-moe", "int8"), ("mixtral", "fp8"), ("mixtral", "w4a8-g32-qoq")],
)
def test_transformers_loads_the_experts_that_were_written(
    variant: str, recipe: str, tmp_path: Path
) -> None:
    VARIANTS[variant](tmp_path / "in", torch.bfloat16, 0)
    result = compressed(Checkpoint.open(tmp_path / "in"), tmp_path / "out", recipe)
    assert not any("does not load" in note for note in result.notes)
    ours = Checkpoint.open(tmp_path / "out")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    experts = theirs.model.layers[1].mlp.experts
    size = ours.spec.layers[1].experts.size
    for expert in range(ours.spec.layers[1].experts.num):
        parts = {
            "gate": experts.gate_up_proj[expert, :size],
            "up": experts.gate_up_proj[expert, size:],
            "down": experts.down_proj[expert],
        }
        for role, values in parts.items():
            expected = ours.linear(f"experts.{expert}.{role}", 1).dequantize()
            assert np.array_equal(values.detach().float().numpy(), expected)
    router = theirs.model.layers[1].mlp.gate.weight.detach().float().numpy()
    assert np.array_equal(router, ours.router("router", 1).to_float32())


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("w8a8", "int-quantized experts"),
        ("w4a8-g32", "int-quantized experts"),
        ("smoothquant-w8a8", "int-quantized experts"),
        ("int4-g32-asym", "experts with zero points"),
    ],
)
def test_what_transformers_does_not_load_is_a_note(recipe: str, words: str, tmp_path: Path) -> None:
    VARIANTS["mixtral"](tmp_path / "in", torch.bfloat16, 0)
    result = compressed(Checkpoint.open(tmp_path / "in"), tmp_path / "out", recipe)
    with pytest.raises(RuntimeError):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    told = [note for note in result.notes if "does not load" in note]
    assert len(told) == 1
    assert words in told[0]
    # Without experts the same recipes load.
    VARIANTS["llama-gqa"](tmp_path / "dense", torch.bfloat16, 0)
    dense = compressed(Checkpoint.open(tmp_path / "dense"), tmp_path / "dense-out", recipe)
    assert not any("does not load" in note for note in dense.notes)
    AutoModelForCausalLM.from_pretrained(tmp_path / "dense-out", dtype=torch.bfloat16)


@pytest.mark.parametrize("target", ["gptq", "gptq-v2", "awq", "bf16"])
@pytest.mark.parametrize("variant", WITH_EXPERTS)
def test_other_formats_hold_the_same_experts(variant: str, target: str, tmp_path: Path) -> None:
    VARIANTS[variant](tmp_path / "in", torch.bfloat16, 0)
    recipe = "int4-g32-asym" if target == "awq" else "int4-g32"
    compressed(Checkpoint.open(tmp_path / "in"), tmp_path / "out", recipe)
    source = Checkpoint.open(tmp_path / "out")
    convert(source, tmp_path / target, target)
    written = Checkpoint.open(tmp_path / target)
    for role in written.spec.linear_shapes(1):
        # Half precision scales of other formats round the products otherwise.
        ours, theirs = source.linear(role, 1), written.linear(role, 1)
        if target == "bf16":
            assert np.array_equal(ours.dequantize(), theirs.dequantize())
        else:
            assert np.array_equal(ours.at_work(), theirs.at_work())
        assert written.is_coded(written.linear_name(role, 1)) == (target != "bf16")


def test_experts_go_into_gguf_and_back(tmp_path: Path) -> None:
    VARIANTS["qwen2-moe"](tmp_path / "in", torch.float32, 0)
    write_byte_tokenizer(tmp_path / "in")
    source = Checkpoint.open(tmp_path / "in")
    convert(source, tmp_path / "x.gguf", "gguf")
    convert(Checkpoint.open(tmp_path / "x.gguf"), tmp_path / "again", "fp32")
    again = Checkpoint.open(tmp_path / "again")
    assert again.spec == source.spec
    assert again.tensors.keys() == source.tensors.keys()
    for name, tensor in source.tensors.items():
        assert np.array_equal(again.tensors[name].to_float32(), tensor.to_float32())
