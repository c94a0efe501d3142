import pytest

from paredown.engine.sampling.sampling_params import ParameterError, SamplingParams
from paredown.errors import RequestError

BAD = [
    ("temperature", -0.1),
    ("temperature", float("nan")),
    ("temperature", float("inf")),
    ("temperature", 10**400),
    ("temperature", True),
    ("temperature", "hot"),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_p", float("nan")),
    ("top_k", -1),
    ("top_k", 1.5),
    ("top_k", 2**40),
    ("seed", 2**63),
    ("seed", "7"),
    ("max_tokens", 0),
    ("max_tokens", 10**30),
    ("max_tokens", True),
    ("stop", ("",)),
    ("stop", ("x" * 257,)),
    ("stop", ("a",) * 17),
    ("stop", "text"),
    ("stop", (3,)),
    ("stop_token_ids", (-1,)),
    ("stop_token_ids", (1,) * 257),
    ("stop_token_ids", [1]),
    ("logprobs", 21),
    ("logprobs", -1),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_refuses_and_names_the_field(field, value):
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**{field: value})
    assert isinstance(caught.value, RequestError)
    assert caught.value.field == field
    assert field in str(caught.value)
    assert caught.value.remedy


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1)


def test_accepts_the_ends_of_every_range():
    SamplingParams(temperature=0, top_p=1, top_k=0, seed=-(2**63), max_tokens=1, logprobs=0)
    SamplingParams(temperature=100, top_p=1e-9, top_k=2**31, seed=2**63 - 1, logprobs=20)
    SamplingParams(max_tokens=None, stop=("x" * 256,) * 16, stop_token_ids=(0,) * 256)
