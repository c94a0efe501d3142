"""The on-disk form of load_in_8bit checkpoints."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BitsAndBytesConfig

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.quantize.llm_int8 import LLMInt8
from paredown.compress.quantize.method import LayerTarget
from paredown.errors import CheckpointError, UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.grid_weight import GridWeight
from paredown.formats.quantize import quantize
from paredown.formats.stored.bitsandbytes import (
    CODES,
    ORDER,
    ROW_MAXIMA,
    SPEC,
    decode,
    encode,
    tensor_shapes,
    write_bitsandbytes,
)
from paredown.formats.stored.stored_format import Layout
from paredown.formats.stored.table import read_quantization
from paredown.formats.table import FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.files.safetensors_file import write_safetensors
from paredown.models.roles import linear_roles
from paredown.spec.weight import ScaleDType

LAYOUT = Layout(specs={"a": SPEC}, output="lm_head", others=["lm_head"])


def stored(seed: int, num_rows: int = 5, num_columns: int = 24) -> dict[str, StoredTensor]:
    """As bitsandbytes quantizes (backends/default/ops.py: int8_vectorwise_quant)."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((num_rows, num_columns)).astype(np.float32)
    maxima = np.abs(values).max(axis=1)
    codes = np.rint(values * (np.float32(127) / maxima[:, None])).astype(np.int8)
    return {
        CODES: StoredTensor(dtype="I8", array=codes),
        ROW_MAXIMA: StoredTensor(dtype="F32", array=maxima),
        ORDER: StoredTensor(dtype="U8", array=np.array(0, np.uint8)),
    }


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_there_and_back(seed: int) -> None:
    tensors = stored(seed)
    weight = decode(tensors)
    assert weight.spec == SPEC
    # The library multiplies by SCB and then by 1/127; two roundings away at most.
    library = tensors[CODES].array * tensors[ROW_MAXIMA].array[:, None] * np.float32(1 / 127)
    np.testing.assert_allclose(weight.at_work(), library, rtol=3e-7)
    again = encode(weight)
    assert {suffix: one.shape for suffix, one in again.items()} == tensor_shapes((5, 24))
    np.testing.assert_array_equal(again[CODES].array, tensors[CODES].array)
    np.testing.assert_allclose(again[ROW_MAXIMA].array, tensors[ROW_MAXIMA].array, rtol=2e-7)
    assert again[ORDER] == tensors[ORDER]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale_dtype=st.sampled_from(["bf16", "fp16", "fp32"]))
def test_what_llm_int8_makes_comes_back_the_same(seed: int, scale_dtype: ScaleDType) -> None:
    generator = torch.Generator().manual_seed(seed)
    values_OI = torch.randn(33, 16, generator=generator) * torch.rand(1, generator=generator)
    values_OI[5] = 0
    target = LayerTarget(spec=SPEC, scale_dtype=scale_dtype)
    weight = LLMInt8().quantize(values_OI, target, None).weight
    again = decode(encode(weight))
    assert np.array_equal(again.values_OI, weight.values_OI)
    assert np.array_equal(again.scales_OG, weight.scales_OG)


def _with_scales(scales_O: np.ndarray) -> GridWeight:
    codes_OI = np.full((len(scales_O), 8), 130, np.uint8)
    return GridWeight(spec=SPEC, values_OI=codes_OI, scales_OG=scales_O.astype(np.float32)[:, None])


@pytest.mark.parametrize("scale", [1.0, 0.25, 1e-45, 0.0])
def test_scales_that_some_magnitude_gives_come_back(scale: float) -> None:
    """Of the first 200 fp32 numbers from there: magnitudes lie twice as dense between 2^n and
    2^n * 128/127."""
    weight = _with_scales((np.float32(scale).view(np.int32) + np.arange(200)).view(np.float32))
    assert np.array_equal(decode(encode(weight)).scales_OG, weight.scales_OG)


@pytest.mark.parametrize("scale", [1.9, 1e37])
def test_scales_that_no_magnitude_gives_are_refused(scale: float) -> None:
    weight = _with_scales((np.float32(scale).view(np.int32) + np.arange(200)).view(np.float32))
    with pytest.raises(UnsupportedError, match="not each row's largest magnitude"):
        encode(weight)


def test_an_older_order_is_refused() -> None:
    tensors = stored(1)
    tensors[ORDER] = StoredTensor(dtype="U8", array=np.array(2, np.uint8))
    with pytest.raises(UnsupportedError, match="order"):
        decode(tensors)


@pytest.mark.parametrize(
    ("suffix", "array", "problem"),
    [
        (CODES, None, "missing"),
        (ROW_MAXIMA, None, "missing"),
        (ORDER, None, "missing"),
        (CODES, StoredTensor(dtype="U8", array=np.zeros((5, 24), np.uint8)), "wrong dtype"),
        (CODES, StoredTensor(dtype="I8", array=np.zeros(120, np.int8)), "wrong dtype or shape"),
        (ROW_MAXIMA, StoredTensor(dtype="F32", array=np.ones(4, np.float32)), "one value per row"),
        (ROW_MAXIMA, StoredTensor(dtype="F32", array=np.full(5, -1, np.float32)), "magnitudes"),
        (ROW_MAXIMA, StoredTensor(dtype="F32", array=np.full(5, np.nan, np.float32)), "magnitudes"),
    ],
)
def test_bad_tensors_are_refused(suffix: str, array: StoredTensor | None, problem: str) -> None:
    tensors = stored(2)
    if array is None:
        del tensors[suffix]
    else:
        tensors[suffix] = array
    with pytest.raises(CheckpointError, match=problem):
        decode(tensors)


def test_what_it_cannot_hold_is_refused() -> None:
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    for name in ("int4-g32", "int8-asym", "fp8", "w8a8"):
        with pytest.raises(UnsupportedError, match="int8 rows"):
            encode(quantize(values, FORMATS[name], "fp32"))
    codes = np.full((1, 32), 0, np.uint8)
    weight = GridWeight(spec=SPEC, values_OI=codes, scales_OG=np.ones((1, 1), np.float32))
    with pytest.raises(UnsupportedError, match="-127"):
        encode(weight)


def test_the_config_is_transformers_own() -> None:
    ours = write_bitsandbytes(LAYOUT)
    theirs = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=["lm_head"]).to_dict()
    assert {name: theirs[name] for name in ours} == ours
    read = read_quantization(theirs, ["a.SCB", "a.weight", "lm_head.weight"])
    assert read.form_for("lm_head") is None
    form = read.form_for("a")
    assert form is not None
    assert form.tensor_shapes((5, 24)) == tensor_shapes((5, 24))


def test_other_configs_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="load_in_8bit"):
        read_quantization(BitsAndBytesConfig(load_in_4bit=True).to_dict(), ["a.SCB"])
    with pytest.raises(CheckpointError, match="no tensor is"):
        read_quantization(write_bitsandbytes(LAYOUT), ["a.weight"])


def test_a_folder_runs_as_the_library_dequantizes_it(tmp_path: Path) -> None:
    VARIANTS["llama-gqa"](tmp_path / "plain", torch.float32, 0)
    plain = Checkpoint.open(tmp_path / "plain")
    tensors: dict[str, StoredTensor] = {}
    state = dict(plain.tensors.items())
    for layer in range(plain.spec.num_layers):
        for role in linear_roles(plain.spec, 0):
            name = plain.linear_name(role, layer)
            values = torch.from_numpy(state.pop(f"{name}.weight").array.copy())
            target = LayerTarget(spec=SPEC, scale_dtype="fp32")
            weight = LLMInt8().quantize(values, target, None).weight
            tensors |= {f"{name}.{suffix}": one for suffix, one in encode(weight).items()}
    folder = tmp_path / "int8"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors | state)
    config = dict(plain.config) | {"quantization_config": write_bitsandbytes(LAYOUT)}
    (folder / "config.json").write_text(json.dumps(config))
    read = Checkpoint.open(folder)
    ids = torch.randint(2, VOCAB_SIZE, (1, 20), generator=torch.Generator().manual_seed(0))
    expected = Decoder.from_checkpoint(plain)
    for layer, module in enumerate(expected.layers):
        for role in linear_roles(plain.spec, 0):
            name = plain.linear_name(role, layer)
            maxima = torch.from_numpy(tensors[f"{name}.{ROW_MAXIMA}"].array)
            codes = torch.from_numpy(tensors[f"{name}.{CODES}"].array.copy()).float()
            module.get_submodule(role).weight.data = codes * maxima[:, None] * (1 / 127)
    logits_TV = expected(ids)[0].numpy()
    np.testing.assert_allclose(Decoder.from_checkpoint(read)(ids)[0], logits_TV, atol=1e-4)
    executor = load_executor(read, RunOptions(num_pages=2, kv_dtype="fp32"))
    part = SequenceSlice(token_ids=ids[0].tolist(), start=0, pages=[0, 1], num_logits=20)
    np.testing.assert_allclose(executor.step([part]), logits_TV, atol=1e-4)
