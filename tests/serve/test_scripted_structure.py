"""A schema over a model that wants to say a given text (A09 of new-rooms)."""

import json
from collections.abc import Iterator

import jsonschema
import numpy as np
import numpy.typing as npt
import pytest

from drivers.running_server import NUM_PAGES, Running, running_server
from fakes.toy_executor import ToyExecutor, toy_spec
from paredown.executors.protocol import SequenceSlice
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

PROMPT = "It was"
SCHEMA = {
    "$defs": {"E": {"enum": ["x", "y"]}},
    "type": "object",
    "properties": {
        "e": {"$ref": "#/$defs/E"},
        "n": {"type": "integer", "minimum": 3, "maximum": 12},
        "s": {"type": "string", "maxLength": 2},
    },
    "required": ["e", "n", "s"],
    "additionalProperties": False,
}
ALLOWED = '{"e":"y","n":12,"s":"🦊\\""}'
FORBIDDEN = '{"e":"z","n":13,"s":"abc"}'


class Reciter(ToyExecutor):
    """Wants the tokens of `script` behind the prompt, one after the other, then the end."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        spec = toy_spec(vocab_size=tokenizer.vocab_size)
        super().__init__(spec=spec, num_pages=NUM_PAGES)
        self._tokenizer = tokenizer
        self._num_prompt_tokens = len(tokenizer.prompt_prefix) + len(tokenizer.encode(PROMPT))
        self.script: list[int] = []

    def say(self, text: str) -> None:
        self.script = [*self._tokenizer.encode(text), *self._tokenizer.eos_token_ids]

    def _run(self, one: SequenceSlice) -> list[npt.NDArray[np.float32]]:
        end = one.start + len(one.token_ids)
        return [self._row(position) for position in range(end - one.num_logits, end)]

    def _row(self, position: int) -> npt.NDArray[np.float32]:
        row = np.full(self.spec.vocab_size, -40.0, np.float32)
        following = position + 1 - self._num_prompt_tokens
        row[self.script[min(following, len(self.script) - 1)]] = 9.0
        return row


@pytest.fixture(scope="module")
def reciter() -> Iterator[tuple[Reciter, Running]]:
    tokenizer = Tokenizer.open(resolve_model(None))
    executor = Reciter(tokenizer)
    with running_server(executor=executor, tokenizer=tokenizer) as running:
        yield executor, running
        running.engine.grammars.close()


def choice(running: Running, **fields: object) -> dict[str, str]:
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 60, **fields}
    reply = running.client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, str] = reply.json()["choices"][0]
    return found


def form(schema: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "r", "strict": True, "schema": schema}}


def test_the_model_says_what_it_wants_without_a_form(reciter) -> None:
    executor, running = reciter
    for text in (ALLOWED, FORBIDDEN):
        executor.say(text)
        assert choice(running)["text"] == text


def test_an_allowed_text_comes_back_unchanged(reciter) -> None:
    """A09: the order of properties, a reference, an escape, and a character of two surrogates."""
    executor, running = reciter
    executor.say(ALLOWED)
    found = choice(running, response_format=form(SCHEMA))
    assert (found["text"], found["finish_reason"]) == (ALLOWED, "stop")


def test_a_forbidden_text_becomes_one_that_validates(reciter) -> None:
    """A09: none of the three values is allowed."""
    executor, running = reciter
    executor.say(FORBIDDEN)
    found = choice(running, response_format=form(SCHEMA))
    assert found["text"] != FORBIDDEN
    assert found["finish_reason"] == "stop"
    jsonschema.validate(json.loads(found["text"]), SCHEMA, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("depth", range(3))
def test_a_keyword_that_is_not_kept_is_named_at_every_depth(reciter, depth: int) -> None:
    """A09."""
    _, running = reciter
    schema: dict[str, object] = {"type": "array", "uniqueItems": True}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"p": schema}}
    body = {"prompt": PROMPT, "response_format": form(schema)}
    reply = running.client.post("/v1/completions", json=body)
    assert reply.status_code == 400
    assert "uniqueItems" in reply.json()["error"]["message"]
