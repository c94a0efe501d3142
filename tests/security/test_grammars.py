"""Grammars that are meant to take time or memory: each is refused, or answered, and nobody else
waits for long."""

import threading
from collections.abc import Iterator

import pytest

from drivers.running_server import Running, running_server
from paredown.engine.engine import Engine
from paredown.engine.llm import LLM

DOUBLING = "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(40))
BOMBS: dict[str, dict[str, object]] = {
    "nested repeats": {"guided_regex": "((((a{1,99}){1,99}){1,99}){1,99}){1,99}"},
    "counted classes": {"guided_regex": r"(\w{1,500}\s{1,500}){500}"},
    "doubling rules": {"guided_grammar": f'start: r0\n{DOUBLING}\nr40: "a"'},
    "ambiguous rules": {"guided_grammar": 'start: s\ns: s s s | s s | "a" | ""'},
    "a reference loop": {"guided_json": {"allOf": [{"$ref": "#"}, {"type": "string"}]}},
    "a huge list": {"guided_json": {"enum": [f"value {i}" for i in range(8000)]}},
    "huge bounds": {"guided_json": {"type": "array", "minItems": 10**9, "items": {"const": 1}}},
    "a long text": {"guided_json": {"const": "x y z " * 20_000}},
    "too long": {"guided_regex": "a" * 1_000_000},
}


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    llm = LLM(None, num_pages=128, num_threads=1)

    def load(_: Engine) -> Engine:
        return llm.engine

    with running_server(load=load, tokenizer=llm.tokenizer) as running:
        yield running
    llm.engine.grammars.close()


def test_bombs_harm_nobody(served: Running) -> None:
    statuses: dict[str, int] = {}

    def send(name: str) -> None:
        body = {"prompt": "It was", "max_tokens": 20, **BOMBS[name]}
        statuses[name] = served.client.post("/v1/completions", json=body).status_code

    plain = {"prompt": "It was", "max_tokens": 20, "temperature": 0}
    alone = served.client.post("/v1/completions", json=plain).json()["choices"]
    threads = [threading.Thread(target=send, args=(name,)) for name in BOMBS]
    for thread in threads:
        thread.start()
    beside = [served.client.post("/v1/completions", json=plain).json()["choices"] for _ in range(5)]
    for thread in threads:
        thread.join(60)
    assert beside == [alone] * 5
    assert statuses.keys() == BOMBS.keys()
    assert set(statuses.values()) <= {200, 400}
    assert statuses["too long"] == statuses["a reference loop"] == 400
    assert served.client.get("/health").status_code == 200
    served.wait_until(lambda: served.worker.num_open_answers == 0)
