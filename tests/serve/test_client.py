"""The official client of the API against a real server."""

import asyncio

import openai
import pytest

from drivers.running_server import SPEC, running_server
from fakes.toy_executor import ToyTokenizer
from paredown.engine.sampling.sampling_params import SamplingParams
from references.plain_loop import plain_loop

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def expected(prompt, **options):
    """What the plain loop answers: tokens, text, finish reason."""
    params = SamplingParams(**{"temperature": 0, "max_tokens": 30, **options})
    token_ids = prompt if isinstance(prompt, list) else ToyTokenizer().encode(prompt)
    return plain_loop(
        token_ids, params, vocab_size=SPEC.vocab_size, max_total_tokens=SPEC.max_positions
    )


def test_models(client):
    assert [model.id for model in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").owned_by == "paredown"
    with pytest.raises(openai.NotFoundError, match="no model 'other'"):
        client.models.retrieve("other")


def test_completion(client):
    reply = client.completions.create(model="toy", prompt=PROMPT, temperature=0, max_tokens=30)
    tokens, text, reason, _ = expected(PROMPT)
    choice = reply.choices[0]
    assert (choice.text, choice.finish_reason) == (text, reason)
    assert reply.object == "text_completion"
    assert reply.usage.prompt_tokens == len(PROMPT)
    assert reply.usage.completion_tokens == len(tokens)
    assert reply.usage.total_tokens == len(PROMPT) + len(tokens)


def test_streamed_completion_adds_up_to_the_whole(client):
    options = {"model": "toy", "prompt": PROMPT, "temperature": 0, "max_tokens": 30}
    chunks = list(
        client.completions.create(**options, stream=True, stream_options={"include_usage": True})
    )
    tokens, text, reason, _ = expected(PROMPT)
    assert "".join(one.text for chunk in chunks for one in chunk.choices) == text
    reasons = [one.finish_reason for chunk in chunks for one in chunk.choices]
    assert reasons[-1] == reason
    assert set(reasons[:-1]) <= {None}
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(tokens)
    assert len({chunk.id for chunk in chunks}) == 1


def test_every_setting_of_sampling_reaches_the_sampler(client):
    named = {"seed": 5, "temperature": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4}
    extra = {
        "top_k": 50,
        "min_p": 0.013,
        "typical_p": 0.93,
        "repetition_penalty": 1.3,
        "min_tokens": 4,
        "ignore_eos": False,
    }
    reply = client.completions.create(
        model="toy",
        prompt=PROMPT,
        max_tokens=30,
        logit_bias={"70": 9.0, "71": -3},
        extra_body={**extra, "bad_words": [[70, 70]], "allowed_token_ids": list(range(0, 512, 2))},
        **named,
    )
    wanted = expected(
        PROMPT,
        logit_bias={70: 9.0, 71: -3.0},
        bad_words=((70, 70),),
        allowed_token_ids=tuple(range(0, 512, 2)),
        **named,
        **extra,
    )
    assert reply.choices[0].text == wanted[1]
    assert wanted[1] != expected(PROMPT, **named, **extra)[1]


def test_prompts_of_every_kind(client):
    texts = ["alpha", "beta"]
    tokens = [ToyTokenizer().encode(text) for text in texts]
    wanted = [expected(text)[1] for text in texts]
    for prompt, answers in ((texts, wanted), (tokens, wanted), (tokens[0], wanted[:1])):
        reply = client.completions.create(model="toy", prompt=prompt, temperature=0, max_tokens=30)
        assert [choice.text for choice in reply.choices] == answers
        assert [choice.index for choice in reply.choices] == list(range(len(answers)))


def test_n_choices_are_the_requests_of_following_seeds(client):
    reply = client.completions.create(model="toy", prompt=PROMPT, n=3, seed=40, max_tokens=20)
    for i, choice in enumerate(reply.choices):
        assert choice.text == expected(PROMPT, temperature=1.0, seed=40 + i, max_tokens=20)[1]
    assert reply.usage.prompt_tokens == len(PROMPT)
    chunks = client.completions.create(
        model="toy", prompt=PROMPT, n=3, seed=40, max_tokens=20, stream=True
    )
    texts = ["", "", ""]
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in reply.choices]


def test_completion_logprobs(client):
    options = {"model": "toy", "prompt": PROMPT, "temperature": 0, "max_tokens": 12, "logprobs": 3}
    found = client.completions.create(**options).choices[0].logprobs
    assert found.token_logprobs == pytest.approx(expected(PROMPT, max_tokens=12)[3])
    assert len(found.tokens) == len(found.top_logprobs) == len(found.text_offset) == 12
    assert found.text_offset[0] == 0
    streamed = list(client.completions.create(**options, stream=True))
    rows = [chunk.choices[0].logprobs for chunk in streamed]
    assert [x for row in rows for x in row.token_logprobs] == found.token_logprobs
    assert [x for row in rows for x in row.text_offset] == found.text_offset


def test_stop_string(client):
    whole = expected(PROMPT, ignore_eos=True)[1]
    stop = whole[8:11]
    reply = client.completions.create(
        model="toy",
        prompt=PROMPT,
        temperature=0,
        max_tokens=30,
        stop=[stop, "never"],
        extra_body={"ignore_eos": True},
    )
    assert reply.choices[0].text == whole[: whole.find(stop)]
    assert reply.choices[0].finish_reason == "stop"


MESSAGES = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "?"}]},
]
RENDERED = "<system>Be brief.\n<user>Who ?\n<assistant>"


def test_chat(client):
    reply = client.chat.completions.create(
        model="toy", messages=MESSAGES, temperature=0, max_completion_tokens=30
    )
    tokens, text, reason, _ = expected(RENDERED)
    choice = reply.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", text)
    assert choice.finish_reason == reason
    assert reply.usage.prompt_tokens == len(RENDERED)
    assert reply.usage.completion_tokens == len(tokens)


def test_streamed_chat(client):
    chunks = list(
        client.chat.completions.create(
            model="toy",
            messages=MESSAGES,
            temperature=0,
            max_tokens=30,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    deltas = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(deltas) == expected(RENDERED)[1]
    assert chunks[-1].usage.prompt_tokens == len(RENDERED)


def test_chat_logprobs(client):
    reply = client.chat.completions.create(
        model="toy",
        messages=MESSAGES,
        temperature=0,
        max_tokens=10,
        logprobs=True,
        top_logprobs=2,
    )
    rows = reply.choices[0].logprobs.content
    assert [row.logprob for row in rows] == pytest.approx(expected(RENDERED, max_tokens=10)[3])
    assert {len(row.top_logprobs) for row in rows} == {2}
    assert all(row.logprob == row.top_logprobs[0].logprob for row in rows)


def test_chat_without_max_tokens_goes_on_to_the_end_of_the_context(client):
    reply = client.chat.completions.create(
        model="toy", messages=MESSAGES, temperature=0, extra_body={"ignore_eos": True}
    )
    assert reply.usage.total_tokens == SPEC.max_positions
    assert reply.choices[0].finish_reason == "length"


def test_many_at_once_get_what_each_gets_alone(server):
    async def ask(client, i):
        options = {"model": "toy", "prompt": f"story {i}", "max_tokens": 40, "seed": i}
        options["temperature"] = 0 if i % 2 else 0.9
        if i % 3:
            return (await client.completions.create(**options)).choices[0].text
        stream = await client.completions.create(**options, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def ask_all():
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0
        ) as client:
            return await asyncio.gather(*[ask(client, i) for i in range(60)])

    for i, text in enumerate(asyncio.run(ask_all())):
        temperature = 0 if i % 2 else 0.9
        assert text == expected(f"story {i}", temperature=temperature, seed=i, max_tokens=40)[1]
    server.wait_until(lambda: server.is_empty)


def test_errors_are_the_clients_own_types(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="toy", prompt="x", temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match=r"256 prompt tokens, a context of 256"):
        client.completions.create(model="toy", prompt="x" * 256)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt", prompt="x")


def test_who_sends_a_salt_shares_no_prefix_with_others(server):
    """And tenant, priority and deadline reach the scheduler."""
    body = {"prompt": [7] * 100, "max_tokens": 1, "ignore_eos": True}
    seen = []
    submit = server.engine.scheduler.submit

    def note(request):
        seen.append(request)
        submit(request)

    server.engine.scheduler.submit = note
    try:
        for extra in ({}, {"user": "ann"}, {"cache_salt": "s"}, {"cache_salt": "s"}):
            reply = server.client.post("/v1/completions", json=body | extra)
            assert reply.status_code == 200
        more = {"user": "ann", "priority": 3, "deadline_s": 2.5}
        assert server.client.post("/v1/completions", json=body | more).status_code == 200
    finally:
        server.engine.scheduler.submit = submit
    assert [one.num_cached_tokens for one in seen] == [0, 96, 0, 96, 96]
    service = seen[-1].service
    assert (service.tenant, service.priority, service.deadline_s) == ("ann", 3, 2.5)
