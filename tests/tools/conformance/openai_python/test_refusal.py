"""A test is refused rightly where the request holds what the error names, and never otherwise."""

import json
from typing import Any

import httpx2
import openai
import pytest
from tools.conformance.openai_python.refusal import refusal


def failed(
    kind: type[openai.APIStatusError],
    path: str,
    sent: dict[str, Any],
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
) -> openai.APIStatusError:
    request = httpx2.Request("POST", f"http://127.0.0.1/v1{path}", content=json.dumps(sent))
    response = httpx2.Response(400, request=request)
    body = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return kind(message, response=response, body=body)


def bad(path: str, sent: dict[str, Any], message: str, param: str | None) -> BaseException:
    return failed(openai.BadRequestError, path, sent, message, param=param)


@pytest.mark.parametrize("field", ["functions", "audio", "prediction"])
def test_a_field_that_is_not_served_is_refused_by_name(field: str) -> None:
    error = bad("/chat/completions", {field: 1}, f"{field}: not supported", field)
    assert refusal(error) == f"400 that names {field}, which this route does not serve"


@pytest.mark.parametrize(
    ("path", "sent", "message", "param"),
    [
        ("/chat/completions", {"tools": [1]}, "tools: no", "tools"),
        ("/chat/completions", {}, "functions: no", "functions"),
        ("/chat/completions", {"functions": 1}, "this is refused", "functions"),
        ("/chat/completions", {"functions": 1}, "functions: no", None),
        ("/responses", {"input": "a"}, "input: wrong", "input"),
        ("/responses", {}, "temperature: no", "temperature"),
    ],
)
def test_anything_else_is_a_failure(
    path: str, sent: dict[str, Any], message: str, param: str | None
) -> None:
    assert refusal(bad(path, sent, message, param)) is None


def test_a_request_without_a_prompt_is_refused_by_the_name_of_the_prompt() -> None:
    found = refusal(bad("/responses", {"stream": True}, "input: is required", "input"))
    assert found == "400 that names input, without which there is nothing to answer"


def test_an_object_that_nobody_stored_is_refused_by_its_id() -> None:
    message = "there is no response resp_1"
    error = failed(
        openai.NotFoundError, "/responses/resp_1", {}, message, code="response_not_found"
    )
    assert refusal(error) == "404 that names resp_1, which nobody stored"
    assert refusal(failed(openai.NotFoundError, "/responses/resp_1", {}, message)) is None


def test_an_error_that_is_no_answer_is_a_failure() -> None:
    assert refusal(AssertionError("a type")) is None
