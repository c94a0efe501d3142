"""Defaults of sampling that a model's files give, as the server and the terminal take them."""

import argparse

import pytest

from fakes.small_tokenizers import byte_level, write_folder
from paredown.cli.options.answers import add_answer_arguments, sampling_defaults
from paredown.cli.options.sampling import add_sampling_arguments, sampling_params
from paredown.engine.sampling.sampling_defaults import SamplingDefaults


def served(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_answer_arguments(parser)
    return parser.parse_args(words)


def at_terminal(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_sampling_arguments(parser, max_tokens=128)
    return parser.parse_args(words)


@pytest.fixture
def model(tmp_path):
    settings = {"temperature": 0.6, "top_k": 1, "top_p": "wide"}
    return write_folder(tmp_path, byte_level(), generation_config=settings)


def test_the_models_settings_are_taken_and_told(model, capsys):
    assert sampling_defaults(served(), model) == SamplingDefaults(temperature=0.6, top_k=1)
    told = capsys.readouterr().err
    assert "temperature 0.6, top_k 1" in told
    assert "--generation-config none" in told
    assert "top_p is out of range" in told


def test_they_can_be_left_out(model, capsys):
    assert sampling_defaults(served("--generation-config", "none"), model) == SamplingDefaults()
    assert capsys.readouterr().err == ""


def test_a_model_that_says_nothing_is_not_told_of(tmp_path, capsys):
    write_folder(tmp_path, byte_level(), generation_config={"eos_token_id": 1})
    assert sampling_defaults(served(), tmp_path) == SamplingDefaults()
    assert capsys.readouterr().err == ""


def test_at_a_terminal_what_is_given_comes_before_the_model_and_that_before_our_own():
    of_model = SamplingDefaults(top_k=1, top_p=0.5, max_tokens=7)
    params = sampling_params(at_terminal("--top-p", "0.9"), of_model)
    assert (params.top_p, params.top_k, params.temperature) == (0.9, 1, 0.8)
    assert params.max_tokens == 128
    alone = sampling_params(at_terminal())
    assert (alone.top_p, alone.top_k, alone.temperature) == (1.0, 40, 0.8)
