"""Layers that differ, on both executors: the native one gives the PyTorch decoder's logits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fakes.native_twin import native_twin, random_decoder
from fakes.unequal_layers import MIXED, NARROW, UNTURNED, WIDE, unequal_spec
from paredown.executors.protocol import SequenceSlice
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.spec.kv import KVSpec
from paredown.spec.model import ModelSpec

VOCAB_SIZE = 61
UNEQUAL = unequal_spec(vocab_size=VOCAB_SIZE)
TEXT = np.random.default_rng(3).integers(0, VOCAB_SIZE, 90).tolist()
PAGES = [7, 2, 11, 0, 9, 4]

MODELS = {
    "unequal": UNEQUAL,
    "wide": replace(UNEQUAL, layers=(WIDE, WIDE)),
    "narrow": replace(UNEQUAL, layers=(NARROW, NARROW)),
    "mixed": replace(UNEQUAL, layers=(MIXED, MIXED)),
    "unturned": replace(UNEQUAL, layers=(UNTURNED, UNTURNED)),
}


def check_twins(spec: ModelSpec) -> None:
    decoder = random_decoder(spec)
    executor = native_twin(decoder, KVSpec(num_pages=12, dtype="fp32"), num_threads=2)
    expected = decoder(torch.tensor([TEXT]))[0].numpy()
    scale = np.abs(expected).max()
    for start, end in ((0, 37), (37, 38), (38, 90)):
        part = SequenceSlice(
            token_ids=TEXT[start:end], start=start, pages=PAGES, num_logits=end - start
        )
        difference = np.abs(executor.step([part]) - expected[start:end]).max()
        assert difference <= 2e-5 * scale


@pytest.mark.parametrize("name", MODELS)
def test_native_logits_are_those_of_the_decoder(name: str) -> None:
    check_twins(MODELS[name])


@pytest.mark.parametrize("isa", supported_isas())
def test_on_every_instruction_set(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    check_twins(UNEQUAL)


def test_a_layer_of_another_form_is_another_model() -> None:
    """The comparison sees each form: with one of them changed alone, logits are others."""
    text = torch.tensor([TEXT])
    expected = random_decoder(replace(UNEQUAL, layers=(WIDE, NARROW)))(text)
    attention = NARROW.attention
    changes = {
        "window": replace(NARROW, attention=replace(attention, window=8)),
        "scale": replace(NARROW, attention=replace(attention, scale=0.18)),
        "rotary": replace(NARROW, attention=replace(attention, rotary=WIDE.attention.rotary)),
        "activation": replace(NARROW, mlp=replace(NARROW.mlp, activation="relu")),
        "residual": replace(NARROW, residual="parallel"),
        "multiplier": replace(NARROW, residual_multiplier=1.01),
        "offset": replace(NARROW, norms=replace(NARROW.norms, q=NARROW.norms.k)),
    }
    for name, layer in changes.items():
        logits = random_decoder(replace(UNEQUAL, layers=(WIDE, layer)))(text)
        difference = (logits - expected).abs().max() / expected.abs().max()
        assert difference > 1e-3, name
