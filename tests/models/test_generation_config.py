"""How a checkpoint wants its answers drawn, from a folder and from a GGUF file."""

import json

import numpy as np
import pytest

from fakes.small_tokenizers import byte_level, write_folder
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.errors import CheckpointError
from paredown.models.generation_config import read_sampling_settings
from paredown.models.gguf.file import write_gguf_file

SETTINGS = {
    "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.9,
    "repetition_penalty": 1.1,
}  # fmt: skip


def test_a_folder_says_it_in_generation_config(tmp_path):
    write_folder(
        tmp_path,
        byte_level(),
        generation_config={**SETTINGS, "max_new_tokens": 99, "do_sample": True, "eos_token_id": 1},
    )
    assert read_sampling_settings(tmp_path) == {**SETTINGS, "max_tokens": 99}


def test_a_folder_without_it_says_nothing(tmp_path):
    write_folder(tmp_path, byte_level())
    assert read_sampling_settings(tmp_path) == {}


def test_a_gguf_file_says_it_in_its_metadata(tmp_path):
    path = tmp_path / "model.gguf"
    metadata = {
        "general.architecture": "llama",
        "general.sampling.temp": np.float32(0.7),
        "general.sampling.top_k": np.int32(20),
        "general.sampling.penalty_repeat": np.float32(1.1),
    }
    write_gguf_file(path, metadata, [], [])
    assert read_sampling_settings(path) == {
        "temperature": 0.7,
        "top_k": 20,
        "repetition_penalty": 1.1,
    }


def test_a_damaged_file_is_an_error(tmp_path):
    write_folder(tmp_path, byte_level())
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(CheckpointError, match="generation_config"):
        read_sampling_settings(tmp_path)


def test_defaults_are_those_within_the_rules():
    defaults, notes = SamplingDefaults.of({**SETTINGS, "max_tokens": 99})
    assert not notes
    assert defaults.of_draws == SETTINGS
    params = defaults.params()
    assert {name: getattr(params, name) for name in SETTINGS} == SETTINGS
    assert params.max_tokens == 99
    assert defaults.told().startswith("temperature 0.7, top_k 20, top_p 0.8")
    assert SamplingDefaults().told() == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_k", 2.5),
        ("top_p", 0),
        ("repetition_penalty", float("nan")),
        ("repetition_penalty", [1]),
        ("max_tokens", -5),
        ("top_k", "\x1b[31m" * 1000),
    ],
)
def test_what_is_out_of_range_is_left_out_and_told(name, value):
    defaults, (note,) = SamplingDefaults.of({name: value})
    assert defaults == SamplingDefaults()
    assert name in note
    assert len(note) < 500
    assert note.isprintable()


def test_null_is_nothing():
    assert SamplingDefaults.of(json.loads('{"top_k": null}')) == (SamplingDefaults(), [])
