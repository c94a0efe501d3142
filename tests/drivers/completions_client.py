"""Asks a server of the toy model for completions of one prompt."""

from typing import Any

from drivers.running_server import Running
from fakes.toy_executor import ToyTokenizer

PROMPT = "Once upon a time there was"
TOKENS = ToyTokenizer().encode(PROMPT)


def ask(server: Running, **fields: object) -> dict[str, Any]:
    """Returns the reply to a request for six greedy tokens."""
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 6, **fields}
    reply = server.client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def refused(server: Running, **fields: object) -> dict[str, Any]:
    """Returns the error of a request that gets a 400."""
    body = {"prompt": PROMPT, "max_tokens": 6, **fields}
    reply = server.client.post("/v1/completions", json=body)
    assert reply.status_code == 400, reply.text
    error: dict[str, Any] = reply.json()["error"]
    return error
