"""Keys and values on a small grid: what a folder asks for is what Transformers does with it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from compressed_tensors.modeling import kvcache
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import forward_quantize
from torch import Tensor
from transformers import AutoModelForCausalLM

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.quantize.kv_cache import (
    KVGridDType,
    StaticKVScales,
    StaticTaps,
    round_static,
)
from paredown.evaluate.quality.simulated import Variant, applied
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.files.safetensors_file import read_safetensors
from paredown.models.kv_scales import used_kv_scales
from paredown.spec.kv import PAGE_SIZE, KVFormat, KVSpec

NUM_LAYERS = 2


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (6, 24)), source="random tokens")


@pytest.fixture
def llama(tmp_path: Path) -> Checkpoint:
    make_model("llama", torch.float32, 4).save_pretrained(tmp_path / "in")
    return Checkpoint.open(tmp_path / "in")


@dataclass
class RoundedByTransformers:
    """Every call of compressed-tensors' quantized cache: keys, then values of a layer."""

    before: list[Tensor]
    after: list[Tensor]

    def forward_quantize(
        self, module: torch.nn.Module, x: Tensor, name: str, scheme: QuantizationArgs
    ) -> Tensor:
        rounded = forward_quantize(module, x, name, scheme)
        self.before.append(x)
        self.after.append(rounded)
        return rounded

    def tap(self, layer: int) -> Callable[[str, Tensor], Tensor]:
        """Theirs in the place of ours, if both came to the same. The largest of int4 values is a
        tie by the choice of its scale: rounded apart, the last bit would decide."""

        def run(point: str, x: Tensor) -> Tensor:
            if point not in ("k", "v"):
                return x
            at = 2 * layer + ("k", "v").index(point)
            assert torch.allclose(x, self.before[at], rtol=1e-5, atol=1e-5)
            return self.after[at]

        return run


def rounded_as_written(folder: Path, x_BKTC: Tensor, at: int, form: KVFormat) -> Tensor:
    """What the folder asks for: its stored scale, or one scale for all tokens of a head, which is
    what compressed-tensors makes of "token"."""
    if form.endswith("-static"):
        name = f"model.layers.{at // 2}.self_attn.{'kv'[at % 2]}_scale"
        scale = read_safetensors(folder / "model.safetensors")[name].to_float32()
        dtype: KVGridDType = "fp8" if form == "fp8-static" else "int8"
        return round_static(x_BKTC, torch.from_numpy(scale), dtype)[0]
    if form == "fp8":
        scale_BK11 = x_BKTC.abs().amax((2, 3), keepdim=True) / 448
        return (x_BKTC / scale_BK11).to(torch.float8_e4m3fn).float() * scale_BK11
    half = 2 ** (int(form.removeprefix("int")) - 1)
    scale_BK11 = x_BKTC.abs().amax((2, 3), keepdim=True) / (half - 0.5)
    return (x_BKTC / scale_BK11).round().clamp(-half, half - 1) * scale_BK11


@pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
@pytest.mark.filterwarnings("ignore::UserWarning:compressed_tensors")
@pytest.mark.parametrize("form", get_args(KVFormat))
def test_keys_and_values_are_asked_for(
    llama: Checkpoint,
    calibration: Calibration,
    form: KVFormat,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compress(llama, tmp_path / "out", f"int8-kv-{form}", calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    assert written.kv_dtype == form
    assert not written.notes
    stored = read_safetensors(tmp_path / "out" / "model.safetensors")
    scales = [name for name in stored if name.endswith(("k_scale", "v_scale"))]
    assert len(scales) == (2 * NUM_LAYERS if form.endswith("-static") else 0)
    if scales:
        largest: list[float] = []

        def tap(point: str, x: Tensor) -> Tensor:
            if point == "k":
                largest.append(float(x.abs().max()))
            return x

        decoder = Decoder.from_checkpoint(written)
        decoder.layers[1].tap = tap
        decoder(torch.from_numpy(calibration.windows_NT))
        steps = 448 if form == "fp8-static" else 127.5
        scale = stored["model.layers.1.self_attn.k_scale"].to_float32()
        assert float(scale[0]) == pytest.approx(largest[0] / steps, rel=1e-4)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").eval()
    rounded = RoundedByTransformers(before=[], after=[])
    monkeypatch.setattr(kvcache, "forward_quantize", rounded.forward_quantize)
    ids = torch.from_numpy(calibration.windows_NT)
    with torch.inference_mode():
        expected = theirs(ids, use_cache=False).logits
    assert len(rounded.after) == 2 * NUM_LAYERS
    for at, (before, after) in enumerate(zip(rounded.before, rounded.after, strict=True)):
        by_hand = rounded_as_written(tmp_path / "out", before, at, form)
        assert torch.allclose(after, by_hand, rtol=1e-6, atol=1e-7)
    ours = Decoder.from_checkpoint(written)
    for layer in range(NUM_LAYERS):
        ours.layers[layer].tap = rounded.tap(layer)
    with torch.inference_mode():
        found = ours(ids)
    assert float((expected - found).norm() / found.norm()) < 1e-5


@pytest.mark.parametrize("form", ["int8-static", "fp8-static"])
def test_stored_scales_are_what_native_pages_use(
    llama: Checkpoint, calibration: Calibration, form: KVFormat, tmp_path: Path
) -> None:
    """Logits as of the decoder with the same scales, to 2e-3 of their spread in the mean: a key on
    the edge between two codes may fall to the other side."""
    compress(llama, tmp_path / "out", f"int8-kv-{form}", calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    ids = calibration.windows_NT[0].tolist()
    pages = list(range(-(-len(ids) // PAGE_SIZE)))
    inputs = SequenceSlice(token_ids=ids, start=0, pages=pages, num_logits=len(ids))
    native_TV = load_executor(written, RunOptions(num_pages=len(pages), activations="fp32")).step(
        [inputs]
    )
    exact = load_executor(
        written, RunOptions(num_pages=len(pages), activations="fp32", kv_dtype="fp32")
    )
    exact_TV = exact.step([inputs])
    decoder = Decoder.from_checkpoint(written)
    scales = used_kv_scales(written, KVSpec(num_pages=1, dtype=form))
    static = [
        StaticKVScales(
            k_scale=torch.tensor(scales[layer].keys)[:, None, None],
            v_scale=torch.tensor(scales[layer].values)[:, None, None],
        )
        for layer in range(NUM_LAYERS)
    ]
    dtype: KVGridDType = "fp8" if form == "fp8-static" else "int8"
    variant = Variant(taps=StaticTaps(dtype=dtype, scales=static).by_point())
    with torch.inference_mode(), applied(decoder, variant):
        ours_TV = decoder(torch.tensor([ids]))[0].numpy()
    assert np.abs(ours_TV - native_TV).mean() < 2e-3 * exact_TV.std()
    assert np.abs(ours_TV - native_TV).mean() < 0.1 * np.abs(exact_TV - native_TV).mean()
