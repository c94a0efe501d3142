import dataclasses

import pytest

from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import RULES, SamplingParams
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
    ("max_tokens", -1),
    ("max_tokens", 10**30),
    ("max_tokens", True),
    ("stop", ("",)),
    ("stop", ("x" * 257,)),
    ("stop", ("a",) * 17),
    ("stop", ""),
    ("stop", (3,)),
    ("stop_token_ids", (-1,)),
    ("stop_token_ids", (1,) * 257),
    ("stop_token_ids", ["1"]),
    ("logprobs", 21),
    ("logprobs", -1),
    ("prompt_logprobs", 21),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("min_p", float("nan")),
    ("typical_p", 0),
    ("typical_p", float("inf")),
    ("repetition_penalty", 0),
    ("repetition_penalty", 101),
    ("repetition_penalty", None),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("frequency_penalty", float("nan")),
    ("logit_bias", {3: 101.0}),
    ("logit_bias", {3: float("nan")}),
    ("logit_bias", {-1: 1.0}),
    ("logit_bias", {"3": 1.0}),
    ("logit_bias", dict.fromkeys(range(1025), 1.0)),
    ("logit_bias", [(3, 1.0)]),
    ("allowed_token_ids", ()),
    ("allowed_token_ids", (True,)),
    ("allowed_token_ids", []),
    ("bad_words", ((),)),
    ("bad_words", ("word",)),
    ("bad_words", [["word"]]),
    ("bad_words", 5),
    ("stop", {"a"}),
    ("bad_words", ((1,) * 65,)),
    ("bad_words", ((1,),) * 257),
    ("min_tokens", -1),
    ("min_tokens", 129),
    ("n", 0),
    ("n", 129),
    ("n", 1.0),
    ("ignore_eos", 1),
    ("token_filter", "digits"),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_refuses_and_names_the_field(field, value):
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**{field: value})
    assert isinstance(caught.value, RequestError)
    assert caught.value.field == field
    assert field in str(caught.value)
    assert caught.value.remedy


def test_a_bias_that_is_changed_later_changes_nothing_or_is_refused():
    bias = {2: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[-7] = 1.0
    assert params.logit_bias == {2: 1.0}
    for token_id, number in ((-7, 1.0), ("2", 1.0), (3, float("nan"))):
        changed = SamplingParams(logit_bias={2: 1.0})
        changed.logit_bias[token_id] = number
        with pytest.raises(ParameterError) as caught:
            changed.check_token_ids(512)
        assert caught.value.field == "logit_bias"


def test_lists_and_a_single_stop_text_are_taken_and_copied():
    words, stops = [[1, 2], [3]], ["x", "y"]
    params = SamplingParams(bad_words=words, stop=stops, stop_token_ids=[5], allowed_token_ids=[7])
    words[0].append(9)
    stops.clear()
    assert params == SamplingParams(
        bad_words=((1, 2), (3,)), stop=("x", "y"), stop_token_ids=(5,), allowed_token_ids=(7,)
    )
    assert SamplingParams(stop="x") == SamplingParams(stop=("x",))


def test_an_unknown_field_is_refused():
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1)


def test_every_field_has_a_rule_and_the_default_keeps_it():
    assert list(RULES) == [one.name for one in dataclasses.fields(SamplingParams)]
    SamplingParams()


def test_a_huge_value_is_not_written_out():
    with pytest.raises(ParameterError) as caught:
        SamplingParams(top_k=10**100_000)
    assert len(str(caught.value)) < 300


def test_accepts_the_ends_of_every_range():
    SamplingParams(temperature=0, top_p=1, top_k=0, seed=-(2**63), max_tokens=1, logprobs=0)
    SamplingParams(temperature=100, top_p=1e-9, top_k=2**31, seed=2**63 - 1, logprobs=20)
    SamplingParams(max_tokens=None, stop=("x" * 256,) * 16, stop_token_ids=(0,) * 256)


def test_choices_differ_in_their_seed_alone_and_are_not_checked_again(monkeypatch):
    params = SamplingParams(n=3, seed=7, allowed_token_ids=(5, 3, 5, 3), temperature=0.5)
    assert params.allowed_token_ids == (5, 3)
    monkeypatch.setattr(SamplingParams, "__post_init__", None)
    for number in range(3):
        choice = params.choice(number)
        assert (choice.n, choice.seed) == (1, 7 + number)
        assert choice.allowed_token_ids is params.allowed_token_ids
        assert choice.temperature == 0.5
    assert (params.n, params.seed) == (3, 7)
