"""Every option of sampling reaches the parameter of its name; what is not given is the default."""

import argparse

import pytest

from paredown.cli.options.sampling import add_sampling_arguments, sampling_params
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams


def parse(*words: str) -> SamplingParams:
    parser = argparse.ArgumentParser()
    add_sampling_arguments(parser, max_tokens=9)
    return sampling_params(parser.parse_args(words))


def test_the_defaults() -> None:
    assert parse() == SamplingParams(max_tokens=9, temperature=0.8, top_k=40)


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("--temperature", "temperature", 0.5),
        ("--top-k", "top_k", 3),
        ("--top-p", "top_p", 0.5),
        ("--min-p", "min_p", 0.25),
        ("--typical-p", "typical_p", 0.5),
        ("--repetition-penalty", "repetition_penalty", 1.5),
        ("--presence-penalty", "presence_penalty", -0.5),
        ("--frequency-penalty", "frequency_penalty", 0.5),
        ("--min-tokens", "min_tokens", 4),
        ("--max-tokens", "max_tokens", 4),
        ("--seed", "seed", 4),
    ],
)
def test_an_option_sets_its_field(option: str, field: str, value: float) -> None:
    assert getattr(parse(option, str(value)), field) == value
    with pytest.raises(ParameterError, match=field):
        parse(option, str(10**30))
