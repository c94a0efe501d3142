"""How long an answer may become."""

import pytest

from drivers.running_server import running_server
from fakes.toy_executor import toy_spec
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import ConfigError
from paredown.serve.intake.token_bound import DEFAULT_STREAMED_TOKENS, TokenBound
from paredown.spec.attention_sinks import AttentionSinks
from paredown.spec.context import Context


def test_the_context_is_bound_enough_where_it_ends_an_answer():
    bound = TokenBound.of(Context(spec=toy_spec(max_positions=256)), None)
    params = SamplingParams(max_tokens=10**6)
    assert bound.apply(params) is params


@pytest.mark.parametrize("max_positions", [256, 100_000])
def test_texts_without_end_have_answers_with_one(max_positions):
    spec = toy_spec(max_positions=max_positions)
    bound = TokenBound.of(Context(spec=spec, sinks=AttentionSinks(window=60)), None)
    most = max(max_positions, DEFAULT_STREAMED_TOKENS)
    assert bound.apply(SamplingParams(max_tokens=None)).max_tokens == most
    with pytest.raises(ParameterError, match=rf"at most {most} tokens"):
        bound.apply(SamplingParams(max_tokens=2**30))


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_over_http_more_is_a_400_and_nothing_is_as_many(path):
    body = {"ignore_eos": True, "min_tokens": 1}
    body |= {"prompt": "x"} if path == "completions" else {"messages": [message("x")]}
    with running_server(token_bound=TokenBound(20)) as server:
        for fields, param in (
            ({"max_tokens": 2**30}, "max_tokens"),
            ({"max_tokens": 21}, "max_tokens"),
        ):
            reply = server.client.post(f"/v1/{path}", json=body | fields)
            assert reply.status_code == 400
            assert reply.json()["error"]["param"] == param
            assert "at most 20 tokens" in reply.json()["error"]["message"]
        reply = server.client.post(f"/v1/{path}", json=body | {"max_tokens": 20})
        assert reply.json()["usage"]["completion_tokens"] == 20
        if path != "completions":
            reply = server.client.post(f"/v1/{path}", json=body)
            assert reply.json()["usage"]["completion_tokens"] == 20


def message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_answers_of_no_tokens_are_refused():
    with pytest.raises(ConfigError, match="--max-answer-tokens 0"):
        TokenBound(0)
