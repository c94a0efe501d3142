"""Rounded keys and values: against the definition, the native pages, and compressed-tensors."""

import numpy as np
import pytest
import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams

from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.quantize.kv_cache import (
    KV_GRID_DTYPES,
    KVRange,
    StaticTaps,
    dynamic_taps,
    round_dynamic,
    round_static,
)
from paredown.errors import CheckpointError
from paredown.evaluate.quality.simulated import Variant, applied
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from references.attention import stored


def random_heads(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x_BKTC = torch.randn(2, 3, 40, 32, generator=generator)
    x_BKTC *= torch.exp2(torch.randint(-8, 8, (2, 3, 40, 1), generator=generator))
    x_BKTC[0, 1, 7] = 0
    x_BKTC[0, 2, 8] = 1e-36
    return x_BKTC


@pytest.mark.parametrize("dtype", KV_GRID_DTYPES)
def test_dynamic_codes_are_what_native_pages_give_back(dtype: str) -> None:
    x_BKTC = random_heads()
    x_BKTC[0, 2, 8] = 0
    x_TKC = x_BKTC.permute(0, 2, 1, 3).reshape(80, 3, 32).numpy()
    expected = stored(dtype, x_TKC).reshape(2, 40, 3, 32).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(round_dynamic(x_BKTC, dtype), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_static_codes_are_what_native_pages_give_back(dtype: str) -> None:
    x_BKTC = random_heads()
    scale_K = np.array([0.01, 0.3, 2.0], np.float32)
    x_TKC = x_BKTC.permute(0, 2, 1, 3).reshape(80, 3, 32).numpy()
    expected = stored(f"{dtype}-static", x_TKC, scale_K).reshape(2, 40, 3, 32)
    found, num_clamped = round_static(x_BKTC, torch.from_numpy(scale_K)[:, None, None], dtype)
    np.testing.assert_array_equal(found, expected.transpose(0, 2, 1, 3).astype(np.float32))
    assert num_clamped > 0


@pytest.mark.parametrize("dtype", KV_GRID_DTYPES)
def test_each_token_and_head_is_alone(dtype) -> None:
    x_BKTC = random_heads()
    rounded = round_dynamic(x_BKTC, dtype)
    for b, k, t in [(0, 0, 0), (1, 2, 39), (0, 1, 7), (0, 2, 8)]:
        alone = round_dynamic(x_BKTC[b : b + 1, k : k + 1, t : t + 1], dtype)
        assert torch.equal(rounded[b, k, t], alone[0, 0, 0])
    assert not bool(rounded[0, 1, 7].any())
    # Half a step of int4, of int8, of three bits of mantissa; bf16 scales add 2^-8 of M.
    largest = x_BKTC.abs().amax(-1, keepdim=True)
    bound = {"int4": 1 / 8 + 2**-8, "int8": 0.5 / 127 + 2**-8, "fp8": 2**-4}[dtype]
    assert bool(((rounded - x_BKTC).abs() <= bound * largest + 1e-35).all())


LAYERS_DIFFER = "fp32,1=int4"


@pytest.mark.parametrize("dtype", [*KV_GRID_DTYPES, LAYERS_DIFFER])
@pytest.mark.parametrize("name", ["llama-gqa", "qwen3"])
def test_a_decoder_with_rounded_heads_agrees_with_native_pages(name, dtype, tmp_path) -> None:
    """Logits to 2e-3 of their spread in the mean: a key on the edge between two codes may fall to
    the other side, because the core adds up in another order."""
    VARIANTS[name](tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    decoder = Decoder.from_checkpoint(checkpoint)
    ids = np.random.default_rng(1).integers(2, VOCAB_SIZE, 60).tolist()
    executor = load_executor(
        checkpoint, RunOptions(num_pages=4, activations="fp32", kv_dtype=dtype)
    )
    inputs = SequenceSlice(token_ids=ids, start=0, pages=[0, 1, 2, 3], num_logits=60)
    native_TV = executor.step([inputs])
    if dtype == LAYERS_DIFFER:
        taps = dynamic_taps("int4", checkpoint.spec.num_layers)
        taps = {point: tap for point, tap in taps.items() if point.startswith("layers.1.")}
    else:
        taps = dynamic_taps(dtype, checkpoint.spec.num_layers)
    variant = Variant(taps=taps)
    with torch.inference_mode():
        plain_TV = decoder(torch.tensor([ids]))[0].numpy()
        with applied(decoder, variant):
            ours_TV = decoder(torch.tensor([ids]))[0].numpy()
    spread = float(plain_TV.std())
    assert np.abs(ours_TV - native_TV).mean() < 2e-3 * spread
    assert np.abs(ours_TV - native_TV).mean() < 0.1 * np.abs(plain_TV - native_TV).mean()


@pytest.mark.parametrize("share", ["layer", "head"])
@pytest.mark.parametrize(("dtype", "num_bits"), [("int8", 8), ("int4", 4), ("fp8", 8)])
def test_static_scales_are_those_of_compressed_tensors(dtype, num_bits, share) -> None:
    """The library's `k_scale` of the same extremes, and what it makes of the keys."""
    k_BKTC, v_BKTC = random_heads(1), random_heads(2)
    seen = KVRange()
    for batch in range(2):
        seen.tap("k", k_BKTC[batch : batch + 1])
        seen.tap("v", v_BKTC[batch : batch + 1])
    scales = seen.scales(dtype, share)
    kind = "float" if dtype == "fp8" else "int"
    args = QuantizationArgs(num_bits=num_bits, type=kind, symmetric=True, strategy="tensor")
    for x, ours in ((k_BKTC, scales.k_scale), (v_BKTC, scales.v_scale)):
        heads = x.unbind(1) if share == "head" else [x]
        assert ours.shape == ((3, 1, 1) if share == "head" else (1,))
        rounded, num_clamped = round_static(x, ours, dtype)
        assert num_clamped == 0
        for at, head in enumerate(heads):
            scale, zero = calculate_qparams(head.min().reshape(1), head.max().reshape(1), args)
            assert float(ours[at]) == float(scale)
            theirs = fake_quantize(head, scale, zero, args)
            mine = rounded[:, at] if share == "head" else rounded
            assert torch.equal(mine, theirs)


def test_what_calibration_did_not_see_is_clamped_and_counted() -> None:
    seen = KVRange()
    seen.tap("k", torch.full((1, 2, 1, 32), 1.0))
    seen.tap("v", torch.full((1, 2, 1, 32), 2.0))
    seen.tap("scores", torch.full((1, 2, 1, 32), float("nan")))
    taps = StaticTaps(dtype="int8", scales=[seen.scales("int8", "head")])
    by_point = taps.by_point()
    x_BKTC = torch.ones(1, 2, 1, 32)
    x_BKTC[0, 1, 0, :5] = -3.0
    rounded = by_point["layers.0.k"](x_BKTC)
    assert taps.num_clamped == 5
    assert float(rounded.min()) == pytest.approx(-128 / 127.5)
    by_point["layers.0.v"](x_BKTC)
    assert taps.num_clamped == 10


def test_keys_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(CheckpointError, match="not finite"):
        KVRange().tap("k", torch.tensor([[[[1.0, float("inf")]]]]))
