"""Texts and conversations as tokens, and tokens as text."""

import pytest

from drivers.running_server import SPEC, running_server
from fakes.toy_executor import ToyTokenizer

TEXT = "déjà vu ☃"
MESSAGES = [{"role": "user", "content": "hi"}]


class BosTokenizer(ToyTokenizer):
    prompt_prefix = (400,)
    max_token_bytes = 8


@pytest.fixture(scope="module")
def server():
    with running_server(tokenizer=BosTokenizer()) as running:
        yield running


def post(server, path, **body):
    return server.client.post(f"/{path}", json=body)


def test_a_text_and_its_tokens(server):
    own = ToyTokenizer().encode(TEXT)
    reply = post(server, "tokenize", prompt=TEXT).json()
    assert reply == {
        "count": len(own) + 1,
        "max_model_len": SPEC.max_positions,
        "tokens": [400, *own],
        "token_strs": None,
    }
    plain = post(server, "tokenize", prompt=TEXT, add_special_tokens=False, model="toy").json()
    assert plain["tokens"] == own
    back = post(server, "detokenize", tokens=own, model="toy")
    assert back.json() == {"prompt": TEXT, "content": TEXT}


def test_a_conversation_is_rendered_by_the_template(server):
    def tokens(**fields):
        return post(server, "tokenize", messages=MESSAGES, **fields).json()["tokens"]

    rendered = BosTokenizer().render_chat(MESSAGES)
    assert tokens() == BosTokenizer().encode(rendered)
    assert tokens(add_special_tokens=True) == [400, *tokens()]
    assert tokens(add_generation_prompt=True) == tokens()


def test_tokens_as_the_vocabulary_writes_them(server):
    reply = post(server, "tokenize", prompt="ab", return_token_strs=True).json()
    assert reply["token_strs"] == ["<400>", "<98>", "<99>"]


def test_a_text_as_llama_cpp_asks_for_it(server):
    own = ToyTokenizer().encode(TEXT)
    assert post(server, "tokenize", content=TEXT).json()["tokens"] == own
    assert post(server, "tokenize", content=TEXT, add_special=True).json()["tokens"] == [400, *own]
    pieces = post(server, "tokenize", content="abc", with_pieces=True).json()["tokens"]
    assert [one["id"] for one in pieces] == ToyTokenizer().encode("abc")
    assert [one["piece"] for one in pieces] == ["a", "b", "c"]


def test_what_is_tokenized_is_what_is_computed(server):
    num = post(server, "tokenize", prompt=TEXT).json()["count"]
    body = {"prompt": TEXT, "max_tokens": 1}
    found = server.client.post("/v1/completions", json=body).json()
    assert found["usage"]["prompt_tokens"] == num


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("tokenize", {}, 400, "prompt or messages"),
        ("tokenize", {"prompt": "a", "messages": MESSAGES}, 400, "not two"),
        ("tokenize", {"prompt": ["a"]}, 400, "prompt: should be a string (saw: a list of 1)"),
        ("tokenize", {"messages": []}, 400, "messages"),
        ("tokenize", {"prompt": "a", "add_generation_prompt": True}, 400, "needs messages"),
        ("tokenize", {"messages": MESSAGES, "add_generation_prompt": False}, 400, "should be true"),
        ("tokenize", {"prompt": "a", "model": "other"}, 404, "other"),
        ("tokenize", {"prompt": "a" * 100_000}, 400, "longer than any prompt"),
        ("tokenize", {"prompt": "a", "content": "b"}, 400, "content"),
        ("tokenize", {"content": "a", "messages": MESSAGES}, 400, "not two"),
        ("tokenize", {"prompt": "a", "with_pieces": True}, 400, "with_pieces needs content"),
        ("tokenize", {"prompt": "a", "add_special": True}, 400, "add_special needs content"),
        ("tokenize", {"content": "a" * 100_000}, 400, "longer than any prompt"),
        ("detokenize", {}, 400, "tokens: is missing"),
        ("detokenize", {"tokens": [512]}, 400, "512"),
        ("detokenize", {"tokens": [-1]}, 400, "-1"),
        ("detokenize", {"tokens": ["a"]}, 400, "tokens.0"),
        ("detokenize", {"tokens": [1] * 300}, 400, "at most 256"),
    ],
)
def test_bad_input_is_refused_with_its_cause(server, path, body, status, says):
    reply = post(server, path, **body)
    assert reply.status_code == status, reply.text
    assert says in reply.json()["error"]["message"]


def test_nothing_is_nothing(server):
    assert post(server, "detokenize", tokens=[]).json() == {"prompt": "", "content": ""}
    assert post(server, "tokenize", prompt="").json()["tokens"] == [400]
