"""AQLM's layout on disk, against a decoder of its own that reads one weight at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AqlmConfig
from transformers.quantizers.quantizers_utils import should_convert_module

from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.formats.codebook_weight import CodebookSpec, CodebookWeight
from paredown.formats.stored.aqlm import decode, encode, tensor_shapes, write_aqlm
from paredown.formats.stored.stored_format import Layout
from paredown.formats.tensor import StoredTensor

SPECS = st.builds(
    CodebookSpec,
    num_codebooks=st.integers(1, 3),
    nbits_per_codebook=st.sampled_from([1, 2, 5, 8, 9, 12]),
    in_group_size=st.sampled_from([1, 4, 8]),
    out_group_size=st.sampled_from([1, 2]),
)
SPEC = CodebookSpec(num_codebooks=2, nbits_per_codebook=8, in_group_size=4)


def random_weight(spec: CodebookSpec, num_out: int, num_in: int, seed: int) -> CodebookWeight:
    rng = np.random.default_rng(seed)
    shape = (spec.num_codebooks, spec.codebook_size, spec.out_group_size, spec.in_group_size)
    codes = rng.integers(0, spec.codebook_size, (num_out, num_in, spec.num_codebooks))
    return CodebookWeight(
        spec=spec,
        codes_AJM=codes.astype(np.uint16),
        codebooks_MKRC=rng.standard_normal(shape).astype(np.float16).astype(np.float32),
        scales_A=rng.random(num_out).astype(np.float16).astype(np.float32),
    )


def decode_one_by_one(tensors: dict[str, StoredTensor], spec: CodebookSpec) -> np.ndarray:
    """As the inference library: codes modulo 2^bits index the codebooks, vectors add up, scales
    multiply; patch (a, j) covers out_group_size rows and in_group_size columns."""
    codes, codebooks = tensors["codes"].array, tensors["codebooks"].array.astype(np.float64)
    scales = tensors["scales"].array.astype(np.float64)
    rows, columns = spec.out_group_size, spec.in_group_size
    values = np.zeros((codes.shape[0] * rows, codes.shape[1] * columns))
    for o in range(values.shape[0]):
        for i in range(values.shape[1]):
            for m in range(spec.num_codebooks):
                code = int(codes[o // rows, i // columns, m]) % 2**spec.nbits_per_codebook
                values[o, i] += codebooks[m, code, o % rows, i % columns]
            values[o, i] *= scales[o // rows, 0, 0, 0]
    return values


@settings(max_examples=40, deadline=None)
@given(spec=SPECS, seed=st.integers(0, 2**32 - 1))
def test_what_is_written_is_read(spec: CodebookSpec, seed: int) -> None:
    weight = random_weight(spec, 3, 5, seed)
    tensors = encode(weight)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    assert shapes == tensor_shapes(spec, weight.shape)
    assert tensors["codes"].dtype == ("I8" if spec.nbits_per_codebook <= 8 else "I16")
    assert tensors["codebooks"].dtype == tensors["scales"].dtype == "F16"
    again = decode(tensors, spec)
    np.testing.assert_array_equal(again.codes_AJM, weight.codes_AJM)
    np.testing.assert_array_equal(again.codebooks_MKRC, weight.codebooks_MKRC)
    np.testing.assert_array_equal(again.scales_A, weight.scales_A)
    assert again.spec.float_dtype == "fp16"
    expected = decode_one_by_one(tensors, spec)
    assert weight.dequantize().shape == weight.shape == expected.shape
    np.testing.assert_allclose(weight.dequantize(), expected, rtol=2**-10, atol=2e-6)


def test_bits_per_weight_are_those_of_the_tensors() -> None:
    weight = random_weight(SPEC, 6, 10, 0)
    num_bytes = sum(tensor.array.nbytes for tensor in encode(weight).values())
    assert SPEC.bits_per_weight(weight.shape) == num_bytes * 8 / (6 * 40)
    wide = CodebookSpec(num_codebooks=1, nbits_per_codebook=16, in_group_size=8)
    # The paper's 1x16 on a layer of Llama-2-7B: 2 bits of codes, 0.5 of codebook.
    assert wide.bits_per_weight((4096, 4096)) == 2 + 0.5 + 16 / 4096


def test_codes_past_half_are_negative_on_disk() -> None:
    """The library reads int8 codes modulo 256."""
    weight = random_weight(SPEC, 1, 2, 0)
    weight.codes_AJM[0, :, 0] = 127, 128
    weight.codes_AJM[0, :, 1] = 200, 255
    assert encode(weight)["codes"].array.tolist() == [[[127, -56], [-128, -1]]]


def test_transformers_takes_the_config() -> None:
    config = write_aqlm(Layout(specs={"q": SPEC}, output="lm_head", others=["lm_head"]))
    read = AqlmConfig.from_dict(config)
    assert read.quant_method == "aqlm"
    assert (read.in_group_size, read.out_group_size) == (4, 1)
    assert (read.num_codebooks, read.nbits_per_codebook) == (2, 8)
    kept = read.linear_weights_not_to_quantize
    assert not should_convert_module("lm_head", kept)
    assert should_convert_module("model.layers.0.mlp.up_proj", kept)
    assert "lm_head.weight" in kept
    assert read.to_dict() == config


def damage(name: str, tensors: dict[str, StoredTensor]) -> None:
    codes, codebooks = tensors["codes"], tensors["codebooks"]
    if name == "missing":
        del tensors["scales"]
    elif name == "dtype of codes":
        tensors["codes"] = StoredTensor(dtype="I16", array=codes.array.astype(np.int16))
    elif name == "shape":
        tensors["codebooks"] = StoredTensor(dtype="F16", array=codebooks.array[:, :-1])
    elif name == "two dtypes":
        scales = tensors["scales"].to_float32()
        tensors["scales"] = StoredTensor(dtype="F32", array=scales)
    else:
        spoilt = codebooks.array.copy()
        spoilt[0, 3, 0, 0] = np.nan
        tensors["codebooks"] = StoredTensor(dtype="F16", array=spoilt)


@pytest.mark.parametrize(
    "name", ["missing", "dtype of codes", "shape", "two dtypes", "not a number"]
)
def test_damaged_tensors_are_refused(name: str) -> None:
    weight = random_weight(SPEC, 3, 5, 0)
    tensors = encode(weight)
    damage(name, tensors)
    with pytest.raises(CheckpointError):
        decode(tensors, SPEC)


def test_codes_wider_than_their_bits_are_refused() -> None:
    narrow = CodebookSpec(num_codebooks=2, nbits_per_codebook=5, in_group_size=4)
    weight = random_weight(narrow, 3, 5, 0)
    tensors = encode(weight)
    tensors["codes"].array[1, 2, 0] = 16
    with pytest.raises(CheckpointError, match="do not have 5 bits"):
        decode(tensors, narrow)


def test_senseless_shapes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="do not fill"):
        tensor_shapes(SPEC, (3, 10))
    with pytest.raises(ConfigError, match="num_codebooks"):
        CodebookSpec(num_codebooks=0, nbits_per_codebook=8, in_group_size=8)
    with pytest.raises(ConfigError, match="nbits_per_codebook"):
        CodebookSpec(num_codebooks=1, nbits_per_codebook=17, in_group_size=8)
