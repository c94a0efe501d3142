"""/openapi.json against OpenAPI's own schema, and against what the server takes and answers."""

import threading

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from drivers.encoder_server import encoder_server
from drivers.running_server import running_server
from paredown.serve.app import OPEN_PATHS
from paredown.serve.endpoint_table import ENDPOINTS
from paredown.serve.openapi.document import openapi_document

DOCUMENT = openapi_document(ENDPOINTS, has_keys=True)


def fits(value, name):
    """Whether a value is what the document says of the schema."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("has_keys", [True, False])
def test_the_document_is_openapi_3_1(has_keys):
    OpenAPIV31SpecValidator(openapi_document(ENDPOINTS, has_keys=has_keys)).validate()


def test_every_route_is_told_once_and_schemas_have_names_of_their_own():
    told = [(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item]
    assert sorted(told) == sorted((one.method, one.told_path) for one in ENDPOINTS)
    assert not [name for name in DOCUMENT["components"]["schemas"] if "__" in name]
    names = [one["operationId"] for item in DOCUMENT["paths"].values() for one in item.values()]
    assert len(set(names)) == len(names)


def test_every_route_but_open_ones_wants_a_key():
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values():
            assert (operation["security"] == []) == (path in OPEN_PATHS)
            assert ("401" in operation["responses"]) == (path not in OPEN_PATHS)
    without = openapi_document(ENDPOINTS, has_keys=False)
    assert "securitySchemes" not in without["components"]
    assert not [o for item in without["paths"].values() for o in item.values() if "security" in o]


def test_the_server_shows_it():
    with running_server() as server:
        reply = server.client.get("/openapi.json")
        assert reply.json() == openapi_document(ENDPOINTS, has_keys=False)
        assert reply.json() == server.client.get("/openapi.json").json()


BODIES = [
    ("CompletionRequest", {"prompt": "x"}),
    ("CompletionRequest", {"prompt": [[1, 2], [3]], "max_tokens": 3, "logit_bias": {"7": -1.5}}),
    ("CompletionRequest", {"prompt": "x", "temperature": 101}),
    ("CompletionRequest", {"prompt": "x", "top_p": 0}),
    ("CompletionRequest", {"prompt": []}),
    ("CompletionRequest", {"prompt": ["x"] * 65}),
    ("CompletionRequest", {"prompt": "x", "stop": ["a", ""]}),
    ("CompletionRequest", {"prompt": "x", "logit_bias": {"7": 101}}),
    ("CompletionRequest", {"prompt": "x", "logit_bias": {"x": 1}}),
    ("CompletionRequest", {"prompt": "x", "stop_token_ids": [-1]}),
    ("CompletionRequest", {"prompt": "x", "audio": None}),
    ("CompletionRequest", {"prompt": "x", "audio": {"voice": "alloy"}}),
    ("CompletionRequest", {"prompt": "x", "nobody_knows": None}),
    ("CompletionRequest", {"prompt": "x", "seed": 2**63}),
    ("CompletionRequest", {"prompt": "x", "priority": 11}),
    ("CompletionRequest", {"prompt": "x", "deadline_s": 0}),
    ("CompletionRequest", {"prompt": "x", "n": 0}),
]


@pytest.mark.parametrize(("name", "body"), BODIES, ids=str)
def test_a_body_that_fits_is_taken_and_another_is_refused(name, body, server):
    """The other side of this is what schemathesis asks in `make serve-check`."""
    reply = server.client.post("/v1/completions", json={"max_tokens": 2, **body})
    assert (reply.status_code == 200) == fits({"max_tokens": 2, **body}, name), reply.text
    assert fits(reply.json(), "Completion" if reply.status_code == 200 else "ErrorAnswer")


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


def test_a_probe_that_finds_no_model_fits_too():
    may_load = threading.Event()
    load = lambda engine: (may_load.wait(20), engine)[1]  # noqa: E731
    with running_server(load=load, wait=False) as server:
        for path in ("/health", "/ready"):
            reply = server.client.get(path)
            assert reply.status_code == 503
            told = DOCUMENT["paths"][path]["get"]["responses"]["503"]["content"]
            schema = {**told["application/json"]["schema"], "components": DOCUMENT["components"]}
            assert jsonschema.Draft202012Validator(schema).is_valid(reply.json())
        may_load.set()


def test_answers_of_generation_fit_what_is_told_of_them(server):
    logprobs = {"prompt": "x", "max_tokens": 3, "logprobs": 2}
    assert fits(server.client.post("/v1/completions", json=logprobs).json(), "Completion")
    assert not fits({"id": "x"}, "Completion")
    for path, name in (
        ("/health", "Health"),
        ("/ready", "Health"),
        ("/version", "Version"),
        ("/openapi.json", "OpenApiDocument"),
        ("/v1/models", "ModelList"),
        ("/v1/models/toy", "Model"),
        ("/v1/models/other", "ErrorAnswer"),
        ("/nothing", "ErrorAnswer"),
    ):
        assert fits(server.client.get(path).json(), name), path


def test_answers_of_encoders_fit_what_is_told_of_them():
    with encoder_server() as server:
        for encoding in ("float", "base64"):
            status, found = server.post("/v1/embeddings", input="a", encoding_format=encoding)
            assert status == 200
            assert fits(found, "EmbeddingList")
        status, found = server.post("/v1/score", text_1="a", text_2=["b", "c"])
        assert status == 200
        assert fits(found, "ScoreList")
        for asked in ({}, {"return_documents": True, "top_n": 1}):
            status, found = server.post("/rerank", query="a", documents=["b", "c"], **asked)
            assert status == 200
            assert fits(found, "Ranking")
