"""The device of the torch executor: the memory that it has, and how it multiplies."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.backends import mkldnn

from drivers.devices import CUDA, DEVICES
from fakes.native_twin import random_decoder
from fakes.torch_twin import torch_twin
from fakes.unequal_layers import unequal_spec
from paredown.executors.protocol import SequenceSlice
from paredown.models.decoder.device import exact_products, free_bytes
from paredown.spec.device import Device
from paredown.spec.kv import KVSpec

LIBRARIES = torch.backends.cuda.matmul, mkldnn.matmul
WHOLE = SequenceSlice(list(range(40)), 0, [3, 1, 2], 40)


@pytest.fixture(autouse=True)
def _precision_as_before() -> Iterator[None]:
    before = [library.fp32_precision for library in LIBRARIES]
    yield
    for library, precision in zip(LIBRARIES, before, strict=True):
        library.fp32_precision = precision


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_process_lets_libraries_round_changes_no_bit(device: Device) -> None:
    executor = torch_twin(
        random_decoder(unequal_spec(vocab_size=61)), KVSpec(num_pages=4), device=device
    )
    expected = executor.step([WHOLE])
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    mkldnn.matmul.fp32_precision = "bf16"
    assert np.array_equal(executor.step([WHOLE]), expected)
    assert [library.fp32_precision for library in LIBRARIES] == ["tf32", "bf16"]


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_products_are_exact_for_a_while_and_then_as_before(precision: str) -> None:
    torch.set_float32_matmul_precision(precision)
    before = [library.fp32_precision for library in LIBRARIES]

    def fail() -> None:
        with exact_products():
            assert [library.fp32_precision for library in LIBRARIES] == ["ieee", "ieee"]
            raise RuntimeError("a step that fails")

    with pytest.raises(RuntimeError, match="a step that fails"):
        fail()
    assert [library.fp32_precision for library in LIBRARIES] == before
    assert torch.get_float32_matmul_precision() == precision
    torch.set_float32_matmul_precision("highest")


def test_what_pytorch_holds_without_using_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (100, 900))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 20)
    assert free_bytes("cuda") == 130


@pytest.mark.parametrize("device", [CUDA])
def test_free_memory_of_a_gpu_is_told(device: Device) -> None:
    assert 0 < free_bytes(device) <= torch.cuda.mem_get_info()[1]


@pytest.mark.parametrize("device", [CUDA])
def test_factors_that_tf32_does_not_hold_are_multiplied(device: Device) -> None:
    """So that the first test would find products that are rounded."""
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    factors = torch.full((64, 64), 1 + 2**-20, device=device)
    rounded = factors @ factors
    with exact_products():
        assert not torch.equal(factors @ factors, rounded)
