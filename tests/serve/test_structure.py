"""Answers of a certain form over HTTP: the fields of OpenAI and vLLM, and what is refused."""

import json
from collections.abc import Iterator

import jsonschema
import pytest

from drivers.running_server import Running, running_server
from paredown.engine.engine import Engine
from paredown.engine.llm import LLM

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 3, "maximum": 12},
        "s": {"enum": ["x", "y"]},
    },
    "required": ["n", "s"],
    "additionalProperties": False,
}
PLAIN = {"prompt": "It was", "max_tokens": 80, "temperature": 0}


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    llm = LLM(None, num_pages=128, num_threads=1)

    def load(_: Engine) -> Engine:
        return llm.engine

    with running_server(load=load, tokenizer=llm.tokenizer) as running:
        yield running
    llm.engine.grammars.close()


def complete(served: Running, **fields: object) -> tuple[int, dict]:
    answer = served.client.post("/v1/completions", json=PLAIN | fields)
    return answer.status_code, answer.json()


def text(served: Running, **fields: object) -> str:
    status, body = complete(served, **fields)
    assert status == 200, body
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "stop"
    return choice["text"]


JSON_FIELDS = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}},
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "r", "description": "d", "schema": SCHEMA, "strict": True},
        }
    },
    {"response_format": {"type": "json_object", "schema": SCHEMA}},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"json": json.dumps(SCHEMA)}},
    {"guided_json": SCHEMA},
]


@pytest.mark.parametrize("fields", JSON_FIELDS, ids=str)
def test_an_answer_is_valid_under_its_schema(served: Running, fields: dict) -> None:
    jsonschema.validate(json.loads(text(served, **fields)), SCHEMA)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"structured_outputs": {"choice": ["yes"]}}, "yes"),
        ({"guided_choice": ["no"]}, "no"),
        ({"structured_outputs": {"regex": "ab{2}"}}, "abb"),
        ({"guided_regex": "a"}, "a"),
        ({"structured_outputs": {"grammar": 'start: "x" "y"'}}, "xy"),
        ({"guided_grammar": 'root ::= "z"'}, "z"),
        ({"guided_json": {"const": "東京 🦊"}}, '"東京 🦊"'),
        ({"response_format": {"type": "text"}, "guided_choice": ["t"]}, "t"),
    ],
    ids=str,
)
def test_every_form_has_its_names(served: Running, fields: dict, expected: str) -> None:
    assert text(served, **fields) == expected


def test_any_object_is_a_beginning_of_one_or_whole(served: Running) -> None:
    for fields in (
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
    ):
        _, body = complete(served, **fields)
        (choice,) = body["choices"]
        assert choice["text"].startswith("{")
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["text"]), dict)


def test_a_stream_brings_the_same_text(served: Running) -> None:
    fields = PLAIN | {"guided_json": SCHEMA, "stream": True}
    pieces = []
    with served.client.stream("POST", "/v1/completions", json=fields) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                pieces.append(json.loads(line[6:])["choices"][0]["text"])
    assert "".join(pieces) == text(served, guided_json=SCHEMA)


def test_a_chat_keeps_its_schema_and_so_does_each_of_n(served: Running) -> None:
    body = {
        "messages": [{"role": "user", "content": "Some JSON"}],
        "max_tokens": 80,
        "n": 3,
        "seed": 1,
        **JSON_FIELDS[0],
    }
    answer = served.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    for choice in answer.json()["choices"]:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    bad = body | {"response_format": None, "guided_json": {"uniqueItems": True}}
    answer = served.client.post("/v1/chat/completions", json=bad)
    assert answer.status_code == 400
    assert "uniqueItems" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "param", "told"),
    [
        ({"guided_json": {"uniqueItems": True}}, "guided_json", "uniqueItems"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "r", "schema": {"items": {"format": "zip"}}},
                }
            },
            "response_format",
            "format: zip",
        ),
        ({"guided_regex": "a("}, "guided_regex", "cannot be used"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice", "2 are asked for"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "2 are"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs", "not known"),
        ({"response_format": {"type": "yaml"}}, "response_format", "type"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "come together"),
        ({"response_format": {"type": "text", "json_schema": {}}}, "response_format", "together"),
        ({"guided_choice": []}, "guided_choice", "at least 1"),
        ({"guided_choice": ["a", 5]}, "guided_choice", "guided_choice"),
        ({"guided_regex": "x" * 300_000}, "guided_regex", "too long"),
        ({"guided_json": 5}, "guided_json", "guided_json"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_used_is_a_400_that_names_it(
    served: Running, fields: dict, param: str, told: str
) -> None:
    status, body = complete(served, **fields)
    assert status == 400
    assert body["error"]["param"] == param
    assert told in body["error"]["message"]


def test_a_refused_grammar_holds_no_place(served: Running) -> None:
    for _ in range(3):
        assert complete(served, guided_json={"uniqueItems": True})[0] == 400
    served.wait_until(lambda: served.worker.num_open_answers == 0)
