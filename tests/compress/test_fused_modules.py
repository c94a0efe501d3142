"""Modules that hold several roles (Phi-3's qkv_proj and gate_up_proj, GPT-NeoX's query_key_value)
are compressed as the one module that they are, and read back by role."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.compress.quantize.rtn import RTN
from paredown.compress.recipe import Recipe
from paredown.compress.steps import QuantizeStep
from paredown.errors import UnsupportedError
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.roles import linear_places

torch.set_num_threads(1)
FAMILIES = ("phi3", "gpt-neox")
CALIBRATED = ("gptq-int4-g32", "awq-int4-g32", "gptq-w4a8-g32-qoq", "smoothquant-w8a8")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::UserWarning:compressed_tensors"),
]


@pytest.fixture(params=FAMILIES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    VARIANTS[request.param](tmp_path / "in", torch.float32, 3)
    return Checkpoint.open(tmp_path / "in")


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (8, 24)), source="random tokens")


def logits(checkpoint: Checkpoint) -> torch.Tensor:
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, VOCAB_SIZE, (2, 20)))
    with torch.no_grad():
        return Decoder.from_checkpoint(checkpoint)(ids)


@pytest.mark.parametrize("name", ["int4-g32", "int8", "fp8", "w8a8", "int4-g32-asym"])
def test_each_role_reads_the_codes_of_its_own_rows(
    source: Checkpoint, name: str, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", name)
    written = Checkpoint.open(tmp_path / "out")
    for role, layer in linear_places(source.spec):
        wanted = quantize(source.linear(role, layer).dequantize(), FORMATS[name], "fp32")
        found = written.linear(role, layer)
        np.testing.assert_array_equal(found.values_OI, wanted.values_OI, err_msg=role)
        np.testing.assert_array_equal(found.dequantize(), wanted.dequantize(), err_msg=role)


@pytest.mark.parametrize("name", ["int4-g32", *CALIBRATED])
def test_transformers_computes_what_we_do(
    source: Checkpoint, name: str, calibration: Calibration, tmp_path: Path
) -> None:
    """The rows lie where the library looks for them, and so do norms and biases that a transform
    has changed; the codes are near the weights."""
    compress(source, tmp_path / "out", name, calibration=calibration)
    ours = Checkpoint.open(tmp_path / "out")
    assert all(ours.is_coded(ours.linear_name(*place)) for place in linear_places(ours.spec))
    before, after = logits(source), logits(ours)
    assert (before - after).square().mean() < 0.25 * before.square().mean()
    if "w8a8" in name or "w4a8" in name:
        return  # the library rounds inputs, the decoder does not
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").eval()
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, VOCAB_SIZE, (2, 20)))
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, after, rtol=1e-4, atol=1e-4)


def test_gptq_sees_what_all_roles_of_a_module_read(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    """It loses less than rounding to nearest along the same inputs."""
    losses = {}
    for name in ("int3-g32", "gptq-int3-g32"):
        compress(source, tmp_path / name, name, calibration=calibration)
        seen = torch.from_numpy(calibration.windows_NT)
        with torch.no_grad():
            exact = Decoder.from_checkpoint(source)(seen)
            losses[name] = float(
                (Decoder.from_checkpoint(Checkpoint.open(tmp_path / name))(seen) - exact)
                .square()
                .mean()
            )
    assert losses["gptq-int3-g32"] < losses["int3-g32"]


def test_a_module_that_stays_in_floats_is_written_whole(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    """The changes of a transform go along."""
    recipe = Recipe(
        name="some",
        steps=(QuantizeStep(quantizer=RTN(), spec=FORMATS["int8"], targets=("down", "o")),),
    )
    compress(source, tmp_path / "out", recipe, calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    for role in ("q", "k", "v", "up"):
        name = f"{written.linear_name(role, 1)}.weight"
        np.testing.assert_array_equal(
            written.tensors[name].to_float32(), source.tensors[name].to_float32()
        )
    assert (logits(source) - logits(written)).abs().max() < 0.1 * logits(source).abs().max()


def test_a_part_of_a_module_has_no_format_of_its_own(source: Checkpoint, tmp_path: Path) -> None:
    step = QuantizeStep(quantizer=RTN(), spec=FORMATS["int8"], targets=("v", "down"))
    with pytest.raises(UnsupportedError, match=r"q, k, v are one module.*Name all of them"):
        compress(source, tmp_path / "out", Recipe(name="part", steps=(step,)))
    whole = QuantizeStep(quantizer=RTN(), spec=FORMATS["int8"], targets=("q", "k", "v"))
    result = compress(source, tmp_path / "out", Recipe(name="all", steps=(whole,)))
    assert result.num_quantized == source.spec.num_layers
    assert result.schemes[0].roles == "q, k, v"


@pytest.mark.parametrize("name", FAMILIES)
def test_they_are_converted(name: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path / "in", torch.float16, 3)
    source = Checkpoint.open(tmp_path / "in")
    compress(source, tmp_path / "out", "int4-g32")
    written = Checkpoint.open(tmp_path / "out")
    for target in ("gptq", "bf16"):
        convert(written, tmp_path / target, target)
        found = Checkpoint.open(tmp_path / target)
        for role, layer in linear_places(source.spec):
            np.testing.assert_allclose(
                found.linear(role, layer).dequantize(),
                written.linear(role, layer).dequantize(),
                rtol=1e-2,
                atol=1e-4,
            )
