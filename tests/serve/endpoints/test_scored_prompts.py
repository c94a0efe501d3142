"""Completions that repeat and score their prompts."""

import json

import pytest

from drivers.completions_client import PROMPT, TOKENS, ask, refused
from drivers.running_server import SPEC, running_server
from fakes.toy_executor import ToyTokenizer, reference_logits
from references.sampling import reference_logprobs


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


def stream(server, **fields) -> list[dict]:
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 6, "stream": True, **fields}
    reply = server.client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return list(map(json.loads, lines[:-1]))


def expected_logprobs(token_ids: list[int]) -> list[float]:
    """Those of all tokens but the first, by the reference."""
    return [
        reference_logprobs(reference_logits(token_ids[:end], SPEC.vocab_size))[token_ids[end]]
        for end in range(1, len(token_ids))
    ]


def test_echo_gives_the_prompt_back(server):
    alone = ask(server)["choices"][0]
    found = ask(server, echo=True)["choices"][0]
    assert found["text"] == PROMPT + alone["text"]
    assert found["logprobs"] is None


def test_echo_of_tokens_is_their_text(server):
    assert ask(server, prompt=TOKENS, echo=True) | {"id": 0, "created": 0} == ask(
        server, echo=True
    ) | {"id": 0, "created": 0}


@pytest.mark.parametrize("max_tokens", [0, 1, 6])
def test_log_probabilities_of_the_prompt(server, max_tokens):
    found = ask(server, echo=True, logprobs=2, max_tokens=max_tokens)
    (choice,) = found["choices"]
    columns = choice["logprobs"]
    num = len(TOKENS) + max_tokens
    assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(
        ("tokens", "token_logprobs", "top_logprobs", "text_offset"), num
    )
    assert columns["token_logprobs"][0] is None
    assert columns["top_logprobs"][0] is None
    assert columns["token_logprobs"][1 : len(TOKENS)] == pytest.approx(expected_logprobs(TOKENS))
    assert "".join(columns["tokens"][: len(TOKENS)]) == PROMPT
    assert columns["text_offset"][: len(TOKENS)] == list(range(len(PROMPT)))
    # The likeliest, and the token itself; those of one text share a name.
    assert all(1 <= len(top) <= 3 for top in columns["top_logprobs"][1:])
    told = zip(columns["tokens"], columns["token_logprobs"], columns["top_logprobs"], strict=True)
    for name, logprob, top in list(told)[1:]:
        assert top[name] >= logprob
    assert choice["finish_reason"] == "length"
    assert found["usage"]["completion_tokens"] == max_tokens
    if max_tokens:
        alone = ask(server, logprobs=2, max_tokens=max_tokens)["choices"][0]
        assert choice["text"] == PROMPT + alone["text"]
        own = alone["logprobs"]
        assert columns["token_logprobs"][len(TOKENS) :] == own["token_logprobs"]
        shifted = [start + len(PROMPT) for start in own["text_offset"]]
        assert columns["text_offset"][len(TOKENS) :] == shifted


def test_a_harness_reads_log_likelihoods(server):
    """As lm-evaluation-harness's local-completions asks and counts: without the token drawn."""
    num_context = 10
    columns = ask(
        server, prompt=[TOKENS], max_tokens=1, logprobs=1, seed=1234, echo=True, model="toy"
    )["choices"][0]["logprobs"]
    found = columns["token_logprobs"][num_context:-1]
    assert sum(found) == pytest.approx(sum(expected_logprobs(TOKENS)[num_context - 1 :]))
    best = [max(top.values()) for top in columns["top_logprobs"][num_context:-1]]
    likeliest = [
        max(reference_logprobs(reference_logits(TOKENS[:end], SPEC.vocab_size)))
        for end in range(num_context, len(TOKENS))
    ]
    assert best == pytest.approx(likeliest)


def test_scoring_alone_draws_nothing(server):
    found = ask(server, max_tokens=0)
    assert found["choices"][0] == {
        "index": 0, "text": "", "logprobs": None, "finish_reason": "length"
    }  # fmt: skip
    assert found["usage"]["completion_tokens"] == 0
    assert ask(server, prompt=[5], max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"][
        "token_logprobs"
    ] == [None]
    server.wait_until(lambda: server.is_empty)


def test_several_prompts_and_answers_are_scored_alike(server):
    prompts = [PROMPT, "another", "x"]
    found = ask(server, prompt=prompts, n=3, echo=True, logprobs=1, max_tokens=2)["choices"]
    assert len(found) == 9
    for number, choice in enumerate(found):
        prompt = prompts[number // 3]
        assert choice["index"] == number
        assert choice["text"].startswith(prompt)
        token_ids = ToyTokenizer().encode(prompt)
        columns = choice["logprobs"]["token_logprobs"]
        assert columns[0] is None
        assert columns[1 : len(token_ids)] == pytest.approx(expected_logprobs(token_ids))


@pytest.mark.parametrize("fields", [{}, {"logprobs": 1}, {"logprobs": 0, "n": 2}])
@pytest.mark.parametrize("prompt", [PROMPT, "x" * 200, TOKENS])
def test_a_stream_with_echo_adds_up_to_the_whole(server, fields, prompt):
    fields = {"prompt": prompt, "echo": True, **fields}
    whole = ask(server, **fields)["choices"]
    chunks = [one for chunk in stream(server, **fields) for one in chunk["choices"]]
    for choice in whole:
        own = [one for one in chunks if one["index"] == choice["index"]]
        assert "".join(one["text"] for one in own) == choice["text"]
        assert [one["finish_reason"] for one in own if one["finish_reason"]] == ["length"]
        if choice["logprobs"] is not None:
            for name, column in choice["logprobs"].items():
                parts = [one["logprobs"][name] for one in own if one["logprobs"]]
                assert [value for part in parts for value in part] == column


def test_a_long_reply_is_the_same_as_a_short_one(server, monkeypatch):
    fields = {
        "echo": True, "logprobs": 3, "prompt_logprobs": 5, "return_token_ids": True, "n": 2
    }  # fmt: skip
    short = ask(server, **fields)
    monkeypatch.setattr("paredown.serve.answers.answer.MAX_INLINE_LOGPROBS", 0)
    long = ask(server, **fields)
    assert long | {"id": 0, "created": 0} == short | {"id": 0, "created": 0}


def test_prompt_logprobs_have_the_form_of_vllm(server):
    (choice,) = ask(server, prompt_logprobs=2, max_tokens=1)["choices"]
    first, *rows = choice["prompt_logprobs"]
    assert first is None
    assert len(rows) == len(TOKENS) - 1
    for row, token_id, logprob in zip(rows, TOKENS[1:], expected_logprobs(TOKENS), strict=True):
        assert row[str(token_id)]["logprob"] == pytest.approx(logprob)
        assert row[str(token_id)]["decoded_token"] == ToyTokenizer().decode([token_id])
        assert sorted(one["rank"] for one in row.values() if one["rank"]) == [1, 2]
    assert choice["text"] == ask(server, max_tokens=1)["choices"][0]["text"]


def test_token_ids_are_told_where_they_are_asked_for(server):
    found = ask(server, return_token_ids=True)["choices"][0]
    assert found["prompt_token_ids"] == TOKENS
    assert len(found["token_ids"]) == 6
    chunks = [one for chunk in stream(server, return_token_ids=True) for one in chunk["choices"]]
    assert [one for part in chunks for one in part["token_ids"]] == found["token_ids"]
    assert chunks[0]["prompt_token_ids"] == TOKENS
    # One token after the other comes to the same.
    prompt = list(TOKENS)
    for token_id in found["token_ids"]:
        (choice,) = ask(server, prompt=prompt, max_tokens=1, return_token_ids=True)["choices"]
        assert choice["token_ids"] == [token_id]
        prompt.append(token_id)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"echo": "yes"}, "echo"),
    ],
)
def test_what_cannot_be_served_is_named(server, fields, param):
    assert refused(server, **fields)["param"] == param
