"""A chat template is a program of whoever made the model: it is compiled without being run, and it
runs where its time, its memory and its output have an end."""

import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from drivers.running_server import running_server
from fakes.toy_executor import ToyTokenizer
from paredown.errors import CheckpointError, RequestError
from paredown.models.text import chat_templates
from paredown.models.text.chat_template import compile_template
from paredown.models.text.chat_templates import MAX_ADDED_CHARS, MAX_TEMPLATE_CHARS, ChatTemplates

# Far more than any of it takes, and far less than for ever.
SOON_S = 15.0
DOUBLED = "{% set n = namespace(v=START) %}{% for i in range(60) %}{% set n.v = STEP %}{% endfor %}"
NESTED = DOUBLED.replace("START", "[0]").replace("STEP", "[n.v, n.v]")
ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "shifts": "{% set n = namespace(v=9) %}{% for i in range(40) %}{% set n.v = n.v * n.v %}"
    "{% endfor %}{{ n.v }}",
    "digits": "{{ (10 ** 4000 * 10 ** 200) | string | length }}{{ (7 ** 999999) % (10 ** 9) }}"
    "{% for a in range(99999) %}{% set x = 7 ** 99999 %}{% endfor %}",
    "text": "{{ 'x' * 3000000000 }}",
    "joined": DOUBLED.replace("START", "'x'").replace("STEP", "n.v ~ n.v") + "{{ n.v }}",
    "list": "{{ [0] * 3000000000 }}",
    "shared": NESTED + "{{ n.v }}",
    "compared": NESTED + "{% set a = n.v %}" + NESTED + "{{ n.v == a }}",
    "json": "{{ [[0]] | tojson(indent=2000000000) }}",
    "width": "{{ '%3000000000d' % 1 }}",
    "format": "{{ '{:>3000000000}'.format('x') }}",
    "ljust": "{{ 'x'.ljust(3000000000) }}",
    "center": "{{ 'x' | center(3000000000) }}",
    "zfill": "{{ 'x'.zfill(3000000000) }}",
    "expandtabs": "{{ '\t'.expandtabs(2000000000) }}",
    "replaced": "{{ ('x' * 9999).replace('x', 'x' * 999999) }}",
    "indent": "{{ ('\n' * 99999) | indent(99999, true, true) }}",
    "batch": "{{ [0] | batch(2000000000, 0) | list }}",
    "slice": "{{ [0] | slice(2000000000, 0) | list }}",
    "lipsum": "{{ lipsum(n=100000000) }}",
    "recursion": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "output": "{% for a in range(9999) %}{{ 'x' * 99999 }}{% endfor %}",
}


def render(templates: ChatTemplates, content: str) -> str:
    messages = [{"role": "user", "content": content}]
    return templates.render(messages, tools=None, special_tokens={})


@pytest.mark.parametrize("source", ENDLESS.values(), ids=list(ENDLESS))
def test_a_template_without_end_ends_and_the_next_chat_is_rendered(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_templates, "MAX_RENDER_CPU_S", 0.3)
    templates = ChatTemplates(
        f"{{% if messages[0].content == 'bad' %}}{source}{{% else %}}fine{{% endif %}}", "t"
    )
    start_s = time.monotonic()
    with pytest.raises(RequestError, match="template"):
        render(templates, "bad")
    assert render(templates, "good") == "fine"
    assert time.monotonic() - start_s < SOON_S


@pytest.mark.parametrize(
    "source",
    [
        "{{ 9 ** (9 ** 9) }}",
        "{{ 'x' | center(3000000000) }}",
        "{{ [0] * 3000000000 }}",
        "{% autoescape false %}{{ 'x' * 3000000000 }}{% endautoescape %}",
        "{{ 'x' ~ 'x' * 3000000000 }}{{ ('x' * 3000000000)[0] }}{{ 3000000000 * 'x' == 1 }}",
        "{{ (9 ** 9 ** 9) if false else 1 }}{{ -(9 ** 9 ** 9) is odd }}",
    ],
)
def test_nothing_is_computed_when_a_template_is_compiled(source: str) -> None:
    start_s = time.monotonic()
    compile_template("{% if false %}" + source + "{% endif %}" + "x").render()
    assert time.monotonic() - start_s < SOON_S


def test_an_option_that_would_have_to_be_computed_is_refused() -> None:
    source = "{% autoescape 'x' | center(3000000000) %}{% endautoescape %}"
    with pytest.raises(CheckpointError, match="has to be computed"):
        render(ChatTemplates(source, "t"), "x")


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
        "{{ " + "-" * 100_000 + "1 }}",
        "{% if 1 %}" * 5_000 + "{% endif %}" * 5_000,
        "{{ " + "a." * 100_000 + "a }}",
        "{{ 1" + "|abs" * 100_000 + " }}",
        "x" * (MAX_TEMPLATE_CHARS + 1),
    ],
)
def test_a_template_that_cannot_be_compiled_is_an_error_of_ours(source: str) -> None:
    start_s = time.monotonic()
    templates = ChatTemplates(source, "t")
    for _ in range(2):
        with pytest.raises((CheckpointError, RequestError)):
            render(templates, "x")
    assert time.monotonic() - start_s < SOON_S


def test_the_output_of_a_template_is_bounded_by_what_it_was_given() -> None:
    templates = ChatTemplates("{% for i in range(50) %}{{ messages[0].content }}{% endfor %}", "t")
    assert render(templates, "x" * 9_000) == "x" * 450_000
    with pytest.raises(RequestError, match=r"stopped: .*10,000,000 characters"):
        render(templates, "x" * 200_000)
    assert 50 * 9_000 < MAX_ADDED_CHARS < 50 * 200_000


def test_what_a_template_raises_is_cut() -> None:
    templates = ChatTemplates("{{ raise_exception('x' * 100000) }}", "t")
    with pytest.raises(RequestError) as raised:
        render(templates, "x")
    assert len(str(raised.value)) < 1_000


def test_threads_share_the_process_and_get_their_own_answers() -> None:
    templates = ChatTemplates("{{ messages[0].content }}", "t")
    with ThreadPoolExecutor(8) as pool:
        texts = [f"{i} " * i for i in range(200)]
        assert list(pool.map(lambda text: render(templates, text), texts)) == texts


def test_the_process_of_a_template_has_no_secrets_and_no_second_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    templates = ChatTemplates("x", "t")
    assert render(templates, "x") == "x"
    assert templates._process is not None
    process = templates._process._process
    assert process is not None
    with open(f"/proc/{process.pid}/environ") as file:  # noqa: PTH123
        assert "secret" not in file.read()
    del templates
    assert process.poll() is not None


class TemplateTokenizer(ToyTokenizer):
    def __init__(self, source: str) -> None:
        super().__init__()
        self._templates = ChatTemplates(source, "t")

    def render_chat(
        self,
        messages: list[dict[str, object]],
        tools: list[dict[str, object]] | None = None,
        *,
        template_values: Mapping[str, object] | None = None,
    ) -> str:
        return self._templates.render(messages, tools=tools, special_tokens={})


def ask_late(url: str, body: object, replies: list[httpx.Response]) -> None:
    replies.append(httpx.post(f"{url}/v1/chat/completions", json=body, timeout=SOON_S))


def test_a_server_answers_beside_a_template_without_end_and_stops() -> None:
    """The driver asserts that the server has gone in time, with renderings under way."""
    tokenizer = TemplateTokenizer(ENDLESS["loops"])
    body = {"model": "toy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    replies = list[httpx.Response]()
    with running_server(tokenizer=tokenizer) as server:

        def ask() -> None:
            replies.append(server.client.post("/v1/chat/completions", json=body, timeout=60))

        clients = [threading.Thread(target=ask) for _ in range(3)]
        for client in clients:
            client.start()
        slowest_s = 0.0
        while any(client.is_alive() for client in clients):
            start_s = time.monotonic()
            assert server.client.get("/health").status_code == 200
            completion = {"model": "toy", "prompt": "x", "max_tokens": 4}
            assert server.client.post("/v1/completions", json=completion).status_code == 200
            slowest_s = max(slowest_s, time.monotonic() - start_s)
        assert slowest_s < 3.0
        assert [reply.status_code for reply in replies] == [400] * 3
        assert "template was stopped" in replies[0].json()["error"]["message"]
        late = threading.Thread(target=ask_late, args=(server.url, body, replies))
        late.start()
        time.sleep(0.2)
    late.join(SOON_S)
    assert [reply.status_code for reply in replies] == [400] * 4


@pytest.mark.parametrize("name", [1, None, 2.5, True])
def test_names_of_templates_that_are_no_texts_are_damage(name: object) -> None:
    source = [{"name": name, "template": "x"}, {"name": "other", "template": "y"}]
    with pytest.raises(CheckpointError, match="as name"):
        ChatTemplates(source, "t").render(
            [{"role": "user", "content": "x"}], tools=None, special_tokens={}
        )


def test_a_server_that_can_start_no_process_says_that_it_cannot_answer_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not the client's fault, and other requests are answered."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    tokenizer = TemplateTokenizer("{{ messages }}")
    body = {"model": "toy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    with running_server(tokenizer=tokenizer) as server:
        assert server.client.post("/v1/chat/completions", json=body).status_code == 503
        completion = {"model": "toy", "prompt": "x", "max_tokens": 4}
        assert server.client.post("/v1/completions", json=completion).status_code == 200
