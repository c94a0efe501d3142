"""Scalings of rotary positions that go into a GGUF file and come back."""

from dataclasses import replace

import numpy as np
import pytest

from paredown.errors import UnsupportedError
from paredown.models.config import spec_from_config
from paredown.models.families.fields import Fields
from paredown.models.files.json_file import read_json_object
from paredown.models.gguf.config import plain_value
from paredown.models.gguf.metadata import metadata_from_spec
from paredown.models.gguf.rope_scaling import scaling_fields, scaling_metadata
from paredown.models.resolve import resolve_model
from paredown.spec.rotary import Rotary


def again(rotary: Rotary) -> dict[str, object] | None:
    metadata = {"llama.context_length": np.uint32(128), **scaling_metadata(rotary, "llama")}
    values = {key: plain_value(value) for key, value in metadata.items()}
    return scaling_fields(Fields(values), "llama")


def test_plain_and_linear() -> None:
    assert again(Rotary(theta=1e4)) is None
    assert again(Rotary(theta=1e4, scaling="linear", factor=2.5)) == {
        "rope_type": "linear",
        "factor": 2.5,
    }


@pytest.mark.parametrize("attention_factor", [1.0, 1.0 + 0.1 * np.log(4.0), 0.7])
def test_yarn(attention_factor: float) -> None:
    rotary = Rotary(
        theta=1e4,
        scaling="yarn",
        factor=4.0,
        original_max_positions=32,
        attention_factor=attention_factor,
    )
    assert again(rotary) == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "attention_factor": pytest.approx(attention_factor, rel=1e-7),
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }


@pytest.mark.parametrize(
    ("rotary", "is_written"),
    [
        (Rotary(theta=1e4, scaling="yarn", factor=4.0, attention_factor=1.0), True),
        (Rotary(theta=1e4, scaling="yarn", factor=4.0, beta_fast=8.0), False),
        (Rotary(theta=1e4, scaling="yarn", factor=4.0, truncate=False), False),
    ],
)
def test_only_what_llama_cpp_turns_alike_is_written(rotary: Rotary, is_written: bool) -> None:
    spec = spec_from_config(read_json_object(resolve_model(None) / "config.json"))
    layers = [replace(one, attention=replace(one.attention, rotary=rotary)) for one in spec.layers]
    changed = replace(spec, layers=tuple(layers))
    if is_written:
        assert metadata_from_spec(changed)["llama.rope.scaling.type"] == "yarn"
    else:
        with pytest.raises(UnsupportedError, match="cannot be written as GGUF"):
            metadata_from_spec(changed)
