"""POST /v1/embeddings: each form of input, both encodings, and the cases of embeddings (B03, B05,
B11)."""

import base64
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest

from drivers.encoder_server import NAME, encoder_server, toy_model
from fakes.scripted_encoder import ScriptedEncoder
from fakes.word_tokenizer import NUM_WORDS
from paredown.engine.encode.batch_config import BatchConfig
from paredown.serve.endpoints import embeddings

PROMPTS = {"query": "q q ", "document": "d ", "other": "o "}


@pytest.fixture(scope="module")
def server():
    with encoder_server(config=BatchConfig(max_batch_tokens=100)) as running:
        yield running


def words(count: int, seed: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice("abcdefghij") for _ in range(count))


# B03: texts of unlike lengths.
TEXTS = [words(1 + 2 * number % 60, number) for number in range(33)]


def test_vectors_are_the_same_alone_together_shuffled_and_among_other_clients(server):
    together = server.embed(TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        assert (server.embed([text])[0] == row).all()
    assert (server.embed(TEXTS[::-1])[::-1] == together).all()

    def ask(seed: int) -> bool:
        order = random.Random(seed).sample(range(len(TEXTS)), len(TEXTS))
        with httpx.Client(base_url=server.url, timeout=30) as client:
            body = {"model": NAME, "input": [TEXTS[number] for number in order]}
            data = client.post("/v1/embeddings", json=body).json()["data"]
        found = np.array([one["embedding"] for one in data], np.float32)
        return bool((found == together[order]).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(8)))


def test_base64_holds_the_bits_of_the_floats(server):
    floats = server.embed(TEXTS[:3])
    status, found = server.post("/v1/embeddings", input=TEXTS[:3], encoding_format="base64")
    assert status == 200
    packed = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in found["data"]]
    assert (np.array(packed) == floats).all()


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_a_long_answer_is_sent_in_pieces_with_the_same_bytes(server, encoding, monkeypatch):
    body = {"model": NAME, "input": TEXTS, "encoding_format": encoding}
    whole = server.client.post("/v1/embeddings", json=body)
    monkeypatch.setattr(embeddings, "MAX_INLINE_NUMBERS", {"float": 0, "base64": 0})
    pieces = server.client.post("/v1/embeddings", json=body)
    assert "content-length" not in pieces.headers
    assert pieces.content == whole.content


# B11
def test_token_ids_are_one_text_or_several_and_get_no_special_tokens(server):
    status, one = server.post("/v1/embeddings", input=[5, 6, 7])
    assert (status, len(one["data"]), one["usage"]["prompt_tokens"]) == (200, 1, 3)
    status, two = server.post("/v1/embeddings", input=[[5, 6, 7], [8]])
    assert (status, two["usage"]) == (200, {"prompt_tokens": 4, "total_tokens": 4})
    assert two["data"][0]["embedding"] == one["data"][0]["embedding"]
    text = server.embed("a b")
    token_ids = [2, *(7 + "abc".index(letter) for letter in "ab"), 3]
    assert (server.embed(token_ids) == text).all()


BAD_INPUT = {
    "floats": [5, 6.5],
    "a list and a text": [[5], "a"],
    "a text and a list": ["a", [5]],
    "beyond the vocabulary": [10**9],
    "beyond an integer": [10**30],
    "negative": [[-1]],
    "true": [True],
    "no texts": [],
    "an empty list of ids": [[]],
    "an empty text": "",
    "null": None,
    "a number": 5,
    "an object": {"text": "a"},
    "nested": [[[5]]],
    "too many": ["a"] * 2049,
    "too long": "a " * 63,
    "too many ids": [7] * 65,
    "one of several too long": ["a", "a " * 63],
}


@pytest.mark.parametrize("given", BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_refused_by_its_name(server, given):
    status, found = server.post("/v1/embeddings", input=given)
    assert (status, found["error"]["param"]) == (400, "input"), found
    assert server.embed("a").shape == (1, 32)


def test_the_error_about_one_of_several_texts_tells_which(server):
    error = server.post("/v1/embeddings", input=["a", "b " * 80, "c"])[1]["error"]
    assert "text 1" in error["message"]
    assert "82 tokens" in error["message"]


def test_long_texts_are_cut_when_asked_and_the_answer_says_which(server):
    long = "a b " * 60
    for truncate, kept in (("end", "a b " * 31), ("start", "a b " * 31)):
        status, found = server.post("/v1/embeddings", input=["c", long, "d"], truncate=truncate)
        assert (status, found["truncated"]) == (200, [1])
        assert found["usage"]["prompt_tokens"] == 3 + 64 + 3
        row = np.array(found["data"][1]["embedding"], np.float32)
        assert (row == server.embed(kept)[0]).all()
    assert "truncated" not in server.post("/v1/embeddings", input="c", truncate="end")[1]


# B05
@pytest.mark.parametrize("dimensions", [0, -1, 33, "8", 8.5, True, 10**30])
def test_senseless_dimensions_are_refused_by_name(dimensions):
    with encoder_server(toy_model(dimensions=(8, 16))) as server:
        status, found = server.post("/v1/embeddings", input="x", dimensions=dimensions)
        assert (status, found["error"]["param"]) == (400, "dimensions")


@pytest.mark.parametrize("settings", [{"dimensions": (8, 16)}, {"cuts_anywhere": True}])
def test_vectors_are_cut_and_then_brought_to_length_one(settings):
    with encoder_server(toy_model(**settings)) as server:
        full, cut = server.embed(["x", "y"]), server.embed(["x", "y"], dimensions=8)
        lengths = np.linalg.norm(full[:, :8], axis=1, keepdims=True)
        assert np.allclose(cut, full[:, :8] / lengths, atol=1e-6)
        assert (server.embed("y", dimensions=8)[0] == cut[1]).all()
        assert np.allclose(server.embed(["x", "y"], dimensions=32), full, atol=1e-6)


def test_a_model_that_is_not_made_to_be_cut_says_so(server):
    status, found = server.post("/v1/embeddings", input="x", dimensions=8)
    assert (status, found["error"]["param"]) == (400, "dimensions")
    assert "not made to be cut" in found["error"]["message"]


def test_prompts_are_chosen_by_type_by_name_and_as_given():
    with encoder_server(toy_model(prompts=PROMPTS, default_prompt="other")) as server:
        expected = {
            "q q a": [{"input_type": "query"}, {"input_type": "search_query"}],
            "d a": [{"input_type": "document"}, {"input_type": "passage"}],
            "o a": [{}, {"prompt_name": "other"}, {"input_type": "other"}],
            "z a": [{"prompt": "z ", "prompt_name": "query"}, {"prompt": "z "}],
            "a": [{"prompt": ""}, {"input_type": "clustering"}],
        }
        for text, choices in expected.items():
            whole = server.embed(text, prompt="")
            for choice in choices:
                assert (server.embed("a", **choice) == whole).all(), choice
        for field, value in (("prompt_name", "absent"), ("input_type", "absent")):
            status, found = server.post("/v1/embeddings", input="a", **{field: value})
            assert (status, found["error"]["param"]) == (400, field)
        status, found = server.post("/v1/embeddings", input=[5], input_type="query")
        assert (status, found["error"]["param"]) == (400, "input_type")
        assert (server.embed([5]) == server.embed([5], prompt="")).all()


def test_unknown_fields_and_models_are_refused(server):
    status, found = server.post("/v1/embeddings", input="a", inputs="b")
    assert (status, found["error"]["param"]) == (400, "inputs")
    status, found = server.post("/v1/embeddings", input="a", encoding_format="hex")
    assert (status, found["error"]["param"]) == (400, "encoding_format")
    reply = server.client.post("/v1/embeddings", json={"model": "other", "input": "a"})
    assert reply.status_code == 404


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_route_of_generation_says_what_the_model_does(server, path):
    reply = server.client.post(path, json={"model": NAME, "prompt": "a"})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "wrong_task"
    assert "/v1/embeddings" in reply.json()["error"]["message"]


def test_the_official_client_gets_vectors_in_its_default_encoding(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        floats = client.embeddings.create(model=NAME, input=TEXTS[:4], encoding_format="float")
        packed = client.embeddings.create(model=NAME, input=TEXTS[:4])
        assert [one.embedding for one in packed.data] == [one.embedding for one in floats.data]
        assert [one.index for one in packed.data] == [0, 1, 2, 3]
        assert packed.usage.prompt_tokens == packed.usage.total_tokens > 0
        ids = client.embeddings.create(model=NAME, input=[[7, 8], [9]])
        assert len(ids.data) == 2
        extra = client.embeddings.create(
            model=NAME, input="a", user="me", extra_body={"truncate": "end"}
        )
        assert np.isfinite(extra.data[0].embedding).all()
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            client.embeddings.create(model=NAME, input="a", dimensions=0)


def test_numbers_that_are_not_finite_are_never_sent():
    model = toy_model()
    with encoder_server(model, ScriptedEncoder(spec=model.spec, nan_at={7})) as server:
        status, found = server.post("/v1/embeddings", input=["b", "a"])
        assert (status, found["error"]["code"]) == (500, "model_failed")
        assert np.isfinite(server.embed("b")).all()


def test_more_than_may_wait_is_refused_and_answered_later():
    model = toy_model()
    executor = ScriptedEncoder(spec=model.spec, may_go_on=threading.Event())
    with encoder_server(model, executor, config=BatchConfig(max_waiting_texts=4)) as server:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(server.embed, ["a", "b", "c"])
            server.wait_until(lambda: server.worker.num_waiting_texts == 3)
            with httpx.Client(base_url=server.url) as other:
                body = {"model": NAME, "input": ["d", "e"]}
                reply = other.post("/v1/embeddings", json=body)
            assert reply.status_code == 429
            assert "retry-after" in reply.headers
            executor.may_go_on.set()
            assert first.result().shape == (3, 32)
        assert server.embed(["d", "e"]).shape == (2, 32)


def test_a_client_that_hangs_up_has_the_rest_of_its_texts_left_out():
    model = toy_model()
    executor = ScriptedEncoder(spec=model.spec, may_go_on=threading.Event())
    with encoder_server(model, executor, config=BatchConfig(max_batch_tokens=64)) as server:
        body = json.dumps({"input": ["a " * 40] * 200}).encode()
        with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=server.url) as client:
            client.post(
                "/v1/embeddings",
                content=body,
                headers={"Content-Type": "application/json"},
                timeout=0.5,
            )
        executor.may_go_on.set()
        server.wait_until(lambda: server.worker.num_waiting_texts == 0)
        assert len(executor.batches) < 100
        assert server.embed("a").shape == (1, 32)


def test_metrics_count_texts_and_tokens(server):
    before = server.worker.stats.num_tokens
    server.embed(["a b", "c"])
    text = server.client.get("/metrics").text
    assert f"paredown_encoder_tokens_total {float(before + 7)}" in text
    assert "paredown_texts_waiting 0.0" in text


def test_the_vocabulary_of_these_tests_is_the_models(server):
    assert NUM_WORDS < 512
