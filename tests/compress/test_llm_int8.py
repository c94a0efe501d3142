"""LLM.int8(): the mixed product against a naive one, and what is stored."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.quantize.llm_int8 import (
    LLMInt8,
    LLMInt8Linear,
    llm_int8_product,
    row_codes,
    use_llm_int8,
)
from paredown.compress.quantize.method import LayerTarget
from paredown.errors import UnsupportedError
from paredown.formats.table import FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.spec.weight import WeightSpec


def half(value: torch.Tensor) -> float:
    """Through float32, as PyTorch casts."""
    return float(np.float16(np.float32(float(value))))


def naive_product(
    x_TI: torch.Tensor,
    codes_OI: torch.Tensor,
    scales_O: torch.Tensor,
    outliers_OI: torch.Tensor,
    threshold: float,
) -> torch.Tensor:
    """Equation 8, element by element: integers in Python's, halves in NumPy's."""
    num_tokens, num_columns = x_TI.shape
    outliers = [i for i in range(num_columns) if float(x_TI[:, i].abs().max()) >= threshold]
    rest = [i for i in range(num_columns) if i not in outliers]
    result = torch.zeros(num_tokens, codes_OI.shape[0], dtype=torch.float64)
    for t in range(num_tokens):
        largest = max((abs(float(x_TI[t, i])) for i in rest), default=0.0)
        scale = largest / 127 if largest else 1.0
        for o in range(codes_OI.shape[0]):
            whole = sum(round(float(x_TI[t, i]) / scale) * int(codes_OI[o, i]) for i in rest)
            sixteen = sum(half(x_TI[t, i]) * half(outliers_OI[o, i]) for i in outliers)
            result[t, o] = sixteen + whole * scale * float(scales_O[o])
    return result


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_tokens=st.integers(1, 4),
    num_outliers=st.integers(0, 9),
    threshold=st.sampled_from([2.0, 6.0, 1e9]),
)
def test_the_product_is_the_naive_one(
    seed: int, num_tokens: int, num_outliers: int, threshold: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x_TI = torch.randn(num_tokens, 9, generator=generator, dtype=torch.float64)
    x_TI[:, :num_outliers] *= 20
    x_TI[0, 8] = 0
    weight_OI = torch.randn(5, 9, generator=generator, dtype=torch.float64)
    codes_OI, scales_O = row_codes(weight_OI, "fp32")
    ours = llm_int8_product(x_TI, codes_OI, scales_O, weight_OI, threshold)
    naive = naive_product(x_TI, codes_OI, scales_O, weight_OI, threshold)
    torch.testing.assert_close(ours, naive, rtol=1e-9, atol=1e-9)


def test_the_split_is_exact_where_nothing_is_rounded() -> None:
    """Inputs and weights that are whole numbers with a largest of 127 in every row, and outliers
    that fp16 holds: both halves together are the plain product to the bit."""
    generator = torch.Generator().manual_seed(1)
    x_TI = torch.randint(-100, 101, (6, 40), generator=generator).double()
    x_TI[:, 0] = 127
    x_TI[:, 7], x_TI[2, 9] = 1024, -2048
    weight_OI = torch.randint(-100, 101, (8, 40), generator=generator).double()
    weight_OI[:, 1] = 127
    codes_OI, scales_O = row_codes(weight_OI, "fp32")
    exact = x_TI @ weight_OI.T
    assert torch.equal(llm_int8_product(x_TI, codes_OI, scales_O, weight_OI, 1000.0), exact)
    assert torch.equal(llm_int8_product(x_TI, codes_OI, scales_O, weight_OI, 0.5), exact)
    without = llm_int8_product(x_TI, codes_OI, scales_O, weight_OI, 1e9)
    assert not torch.equal(without, exact)


def test_outliers_do_not_widen_the_grid_of_the_others() -> None:
    generator = torch.Generator().manual_seed(2)
    x_TI = torch.randn(16, 64, generator=generator)
    x_TI[:, 3] *= 500
    weight_OI = torch.randn(32, 64, generator=generator)
    weight_OI[:, 3] /= 500
    codes_OI, scales_O = row_codes(weight_OI, "fp32")
    exact = x_TI @ weight_OI.T

    def error(threshold: float) -> float:
        product = llm_int8_product(x_TI, codes_OI, scales_O, weight_OI, threshold)
        return float((product - exact).square().mean())

    assert error(6.0) < 0.01 * error(1e9)


def test_what_is_stored_are_rows_of_at_most_127() -> None:
    weight_OI = torch.randn(6, 48, generator=torch.Generator().manual_seed(3))
    weight_OI[2] = 0
    target = LayerTarget(spec=WeightSpec(dtype="int8", activations="fp32"), scale_dtype="fp32")
    done = LLMInt8().quantize(weight_OI, target, None)
    (note,) = done.notes
    assert "all inputs are rounded to int8, or with --activations fp32 none" in note
    codes_OI = done.weight.values_OI.astype(int) - 128
    for row in range(6):
        largest = float(weight_OI[row].abs().max())
        expected = [round(float(w) * 127 / largest) if largest else 0 for w in weight_OI[row]]
        assert codes_OI[row].tolist() == expected
    values = done.weight.at_work()
    step = weight_OI.abs().amax(1, keepdim=True).numpy() / 127
    assert (np.abs(values - weight_OI.numpy()) <= step / 2 * (1 + 1e-5)).all()


@pytest.mark.parametrize("name", ["int4-g32", "int8-asym", "fp8"])
def test_other_forms_are_refused(name: str) -> None:
    target = LayerTarget(spec=FORMATS[name], scale_dtype="bf16")
    with pytest.raises(UnsupportedError, match="symmetric int8"):
        LLMInt8().quantize(torch.ones(2, 32), target, None)


@pytest.mark.parametrize("variant", ["llama-gqa", "opt", "gpt2"])
def test_a_whole_decoder_runs_so(variant: str, tmp_path: Path) -> None:
    VARIANTS[variant](tmp_path, torch.float32, 0)
    decoder = Decoder.from_checkpoint(Checkpoint.open(tmp_path))
    ids = torch.randint(2, VOCAB_SIZE, (2, 20), generator=torch.Generator().manual_seed(0))
    expected = decoder(ids)
    use_llm_int8(decoder, outliers_from_codes=False)
    assert all(isinstance(layer.down, LLMInt8Linear) for layer in decoder.layers)
    close = decoder(ids)
    assert 0 < float((close - expected).abs().mean()) < 0.05 * float(expected.abs().mean())
    decoder = Decoder.from_checkpoint(Checkpoint.open(tmp_path))
    use_llm_int8(decoder, outliers_from_codes=False, threshold=0.0)
    # All columns in fp16.
    assert float((decoder(ids) - expected).abs().mean()) < 5e-3 * float(expected.abs().mean())
