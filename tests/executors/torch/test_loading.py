"""The torch executor refuses what it cannot load, and tells what it has loaded."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.devices import CUDA, DEVICES, TOLERANCE
from fakes.tiny_t5 import make_t5, write_t5
from paredown.compress.compress import compress
from paredown.errors import CapacityError, ConfigError, UnsupportedError
from paredown.executors.load import load_executor, start_loading
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.executors.torch import loading
from paredown.executors.torch.memory_plan import plan_memory
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.encoder_decoder import EncoderDecoder
from paredown.models.resolve import resolve_model
from paredown.spec.context import Context
from paredown.spec.device import Device
from paredown.spec.kv import KVSpec

OPTIONS = RunOptions(executor="torch", num_pages=8, threads=ThreadPlan.resolve(1))


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return Checkpoint.open(resolve_model(None))


def test_what_does_not_fit_is_refused_with_the_arithmetic_before_it_is_read(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "free_bytes", lambda device: 20 << 20)
    with pytest.raises(
        CapacityError, match=r"weights .* \+ embedding .* = .*; available 20"
    ) as told:
        start_loading(checkpoint, OPTIONS)
    assert "--executor native" in told.value.remedy


@pytest.mark.parametrize("device", [CUDA])
def test_a_gpu_never_takes_more_than_the_plan(checkpoint: Checkpoint, device: Device) -> None:
    context, kv = Context(spec=checkpoint.spec), KVSpec(num_pages=160, dtype="fp32")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    options = replace(OPTIONS, kv_dtype="fp32", num_pages=160, device=device)
    executor = load_executor(checkpoint, options)
    pages = range(5, 85)
    for start in (0, 512):
        tokens = [i % 500 for i in range(512)]
        executor.step([SequenceSlice(tokens, start, pages, 512)])
    taken = torch.cuda.max_memory_allocated() - before
    plan = plan_memory(context, kv, device)
    assert plan.weight_bytes + plan.embedding_bytes + plan.kv_bytes < taken < plan.total_bytes


def test_the_plan_is_what_is_held(checkpoint: Checkpoint) -> None:
    context, kv = Context(spec=checkpoint.spec), KVSpec(num_pages=8, dtype="fp32")
    plan = plan_memory(context, kv)
    decoder = Decoder.from_checkpoint(checkpoint)
    held = sum(values.numel() * 4 for values in decoder.parameters())
    assert plan.weight_bytes + plan.embedding_bytes == held
    executor = load_executor(checkpoint, replace(OPTIONS, kv_dtype="fp32"))
    pages = executor._pages._layers
    assert plan.kv_bytes == sum(values.numel() * values.element_size() for values in pages)
    assert executor.kv_token_bytes * 16 * 8 == plan.kv_bytes
    assert plan.weight_bytes * 0.9 < executor.weight_bytes <= plan.weight_bytes


def test_an_encoder_decoder_holds_both_stacks_and_one_table(tmp_path: Path) -> None:
    write_t5(make_t5("gated-untied"), tmp_path)
    stored = Checkpoint.open(tmp_path)
    plan = plan_memory(Context(spec=stored.spec), KVSpec(num_pages=8, dtype="fp32"))
    model = EncoderDecoder.from_checkpoint(stored)
    held = sum(values.numel() * 4 for values in model.parameters())
    assert plan.weight_bytes + plan.embedding_bytes == held
    executor = load_executor(stored, replace(OPTIONS, kv_dtype="fp32"))
    encoder = stored.encoder.spec.num_linear_parameters() * 4
    assert executor.weight_bytes < held - encoder


@pytest.mark.parametrize("kv_dtype", ["int8", "int4", "fp8", "bf16,last1=int8"])
def test_other_formats_of_keys_and_values_are_refused(
    checkpoint: Checkpoint, kv_dtype: str
) -> None:
    with pytest.raises(UnsupportedError, match="keys and values") as told:
        load_executor(checkpoint, replace(OPTIONS, kv_dtype=kv_dtype))
    assert "--kv-dtype fp32 or bf16" in told.value.remedy


def test_inputs_that_are_to_be_rounded_are_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(UnsupportedError, match="does not round"):
        load_executor(checkpoint, replace(OPTIONS, activations="int8"))
    assert load_executor(checkpoint, replace(OPTIONS, activations="fp32")).num_pages == 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_gpu_that_is_not_there_is_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(UnsupportedError, match="sees no GPU"):
        load_executor(checkpoint, replace(OPTIONS, device="cuda"))


def test_tokens_that_see_what_is_behind_them_are_refused(checkpoint: Checkpoint) -> None:
    spec = checkpoint.spec
    attention = replace(spec.layers[0].attention, is_causal=False)
    layers = (replace(spec.layers[0], attention=attention), *spec.layers[1:])
    with pytest.raises(UnsupportedError, match="behind them"):
        loading.check_causal(replace(spec, layers=layers))


def test_no_pages_and_unknown_names_are_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigError, match="no such device"):
        load_executor(checkpoint, replace(OPTIONS, device="tpu"))
    with pytest.raises(ConfigError, match="KV pages"):
        load_executor(checkpoint, replace(OPTIONS, num_pages=0))
    with pytest.raises(ConfigError, match="no such executor"):
        load_executor(checkpoint, replace(OPTIONS, executor="other"))


@pytest.mark.parametrize("device", DEVICES)
def test_quantized_weights_run_dequantized(
    checkpoint: Checkpoint, device: Device, tmp_path: Path
) -> None:
    compress(checkpoint, tmp_path / "int4", "int4-g32")
    stored = Checkpoint.open(tmp_path / "int4")
    token_ids = list(range(5, 45))
    executor = load_executor(stored, replace(OPTIONS, kv_dtype="fp32", device=device))
    found = executor.step([SequenceSlice(token_ids, 0, [0, 1, 2], 40)])
    expected = Decoder.from_checkpoint(stored)(torch.tensor([token_ids]))[0].numpy()
    assert np.abs(found - expected).max() <= TOLERANCE[device] * np.abs(expected).max()


@pytest.mark.parametrize("device", DEVICES)
def test_the_arithmetic_names_what_bits_depend_on(checkpoint: Checkpoint, device: Device) -> None:
    executor = load_executor(checkpoint, replace(OPTIONS, device=device))
    assert executor.arithmetic["executor"] == "torch"
    assert executor.arithmetic["torch"] == torch.__version__
    assert ("threads" in executor.arithmetic) == (device == "cpu")
    assert executor.known_content is None
    executor.wait_for_cache()
