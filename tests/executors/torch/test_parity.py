"""The torch executor agrees with Transformers on checkpoints that Transformers wrote, and with the
decoder on layers that no family has."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from drivers.devices import DEVICES, TOLERANCE
from fakes.native_twin import random_decoder
from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, VOCAB_SIZE
from fakes.torch_twin import torch_twin
from fakes.unequal_layers import unequal_spec
from paredown.executors.load import load_executor
from paredown.executors.protocol import Executor, SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.spec.device import Device
from paredown.spec.kv import KVDType, KVSpec

TEXT = np.random.default_rng(1).integers(0, VOCAB_SIZE, 60).tolist()
EVERY_VARIANT = {**VARIANTS, **DECODER_VARIANTS}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def in_mixed_steps(executor: Executor) -> np.ndarray:
    """Logits of the text, computed beside another one in chunks that end inside of pages."""
    rows = []
    for start, end in ((0, 37), (37, 38), (38, 60)):
        part = SequenceSlice(TEXT[start:end], start, [7, 2, 5, 1], end - start)
        other = SequenceSlice(TEXT[: end - start], start, [0, 3, 4, 6], 1)
        rows.append(executor.step([other, part])[1:])
    return np.concatenate(rows)


def expected_logits(folder: Path) -> np.ndarray:
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        return model.to(torch.float32).eval()(torch.tensor([TEXT])).logits[0].numpy()


def loaded(folder: Path, device: Device = "cpu", kv_dtype: KVDType = "fp32") -> Executor:
    options = RunOptions(
        executor="torch",
        device=device,
        num_pages=8,
        kv_dtype=kv_dtype,
        threads=ThreadPlan.resolve(1),
    )
    return load_executor(Checkpoint.open(folder), options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EVERY_VARIANT)
def test_logits_are_those_of_transformers(name: str, device: Device, tmp_path: Path) -> None:
    EVERY_VARIANT[name](tmp_path, torch.float32, 1)
    expected = expected_logits(tmp_path)
    difference = np.abs(in_mixed_steps(loaded(tmp_path, device)) - expected).max()
    assert difference <= TOLERANCE[device] * np.abs(expected).max()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["llama-gqa", "gpt-neox"])
def test_bf16_pages_round_keys_and_values_alone(name: str, device: Device, tmp_path: Path) -> None:
    EVERY_VARIANT[name](tmp_path, torch.float32, 1)
    exact = in_mixed_steps(loaded(tmp_path, device))
    rounded = in_mixed_steps(loaded(tmp_path, device, kv_dtype="bf16"))
    # bf16 keeps 8 bits of mantissa: keys and values move by up to 0.2 %.
    assert 0 < np.abs(exact - rounded).max() <= 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("device", DEVICES)
def test_layers_that_differ_give_the_logits_of_the_decoder(device: Device) -> None:
    decoder = random_decoder(unequal_spec(vocab_size=VOCAB_SIZE))
    expected = decoder(torch.tensor([TEXT]))[0].numpy()
    executor = torch_twin(decoder, KVSpec(num_pages=8, dtype="fp32"), device=device)
    difference = np.abs(in_mixed_steps(executor) - expected).max()
    assert difference <= TOLERANCE[device] * np.abs(expected).max()
