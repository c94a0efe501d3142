"""An encoder-decoder over HTTP: the same routes, the same bits in any company, clear refusals."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from drivers.running_server import NUM_PAGES, Running
from drivers.t5_server import t5_server, write_t5_folder
from fakes.t5_tokenizer import END
from fakes.tiny_t5 import MAX_POSITIONS, greedy_t5, make_t5
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = "translate English to German: the thin house"
GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("t5")
    write_t5_folder(made)
    return made


@pytest.fixture(scope="module")
def server(folder):
    with t5_server(folder) as running:
        yield running
        running.wait_until(lambda: running.is_empty)
        running.engine.check_integrity()


def ask(server: Running, path: str = COMPLETIONS, **fields: object) -> dict[str, Any]:
    reply = server.client.post(path, json=fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(server: Running, path: str = COMPLETIONS, **fields: object) -> dict[str, Any]:
    reply = server.client.post(path, json=fields)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def say(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in turns]


def chunks(server: Running, path: str, **fields: object) -> list[dict[str, Any]]:
    body = {**fields, "stream": True}
    with server.client.stream("POST", path, json=body) as reply:
        assert reply.status_code == 200, reply.read()
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_completion_is_what_transformers_and_python_answer(server, folder):
    found = ask(server, prompt=PROMPT, return_token_ids=True, temperature=0, max_tokens=12)
    (choice,) = found["choices"]
    assert choice["prompt_token_ids"][-1] == END
    assert choice["token_ids"] == greedy_t5(make_t5("gated-untied"), choice["prompt_token_ids"], 12)
    usage = found["usage"]
    assert usage["prompt_tokens"] == len(choice["prompt_token_ids"])
    assert usage["completion_tokens"] == len(choice["token_ids"])
    llm = LLM(folder, num_pages=NUM_PAGES, num_threads=1, activations="fp32")
    (alone,) = llm.generate([PROMPT], SamplingParams(temperature=0, max_tokens=12))
    assert (alone.text, alone.token_ids) == (choice["text"], choice["token_ids"])
    assert choice["text"] == llm.tokenizer.decode(choice["token_ids"])
    again = ask(server, prompt=choice["prompt_token_ids"], temperature=0, max_tokens=12)
    assert again["choices"][0]["text"] == choice["text"]


def test_a_chat_is_the_completion_of_what_the_system_and_the_user_say_last(server):
    for turns, text in (
        ([("user", "read this")], "read this"),
        ([("system", "Be short."), ("user", "read this")], "Be short.\n\nread this"),
        ([("developer", "Be short."), ("user", "read this")], "Be short.\n\nread this"),
    ):
        expected = ask(server, prompt=text, **GREEDY)
        reply = server.client.post(CHAT, json={"messages": say(*turns), **GREEDY})
        found = reply.json()
        assert found["choices"][0]["message"]["content"] == expected["choices"][0]["text"]
        assert found["usage"] == expected["usage"]
        assert "x-paredown-note" not in reply.headers


def test_earlier_turns_are_left_out_and_the_reply_says_so(server):
    last = say(("system", "s"), ("user", "and now"))
    earlier = say(("user", "first"), ("assistant", "second"))
    expected = ask(server, CHAT, messages=last, **GREEDY)
    body = {"messages": [last[0], *earlier, last[1]], **GREEDY}
    reply = server.client.post(CHAT, json=body)
    assert reply.json()["choices"][0]["message"] == expected["choices"][0]["message"]
    assert "turns before the last message have no effect" in reply.headers["x-paredown-note"]


def test_other_apis_of_chats_answer_the_same(server):
    fields = {"messages": say(("user", "hi")), "temperature": 0, "max_tokens": 12}
    text = ask(server, CHAT, **fields)["choices"][0]["message"]["content"]
    assert text
    assert ask(server, "/v1/messages", **fields)["content"][0]["text"] == text
    response = ask(server, "/v1/responses", input="hi", temperature=0, max_output_tokens=12)
    assert response["output"][0]["content"][0]["text"] == text
    tokens = ask(server, "/tokenize", messages=say(("user", "hi")))["tokens"]
    assert tokens == ask(server, "/tokenize", prompt="hi")["tokens"]
    assert server.client.get("/report").json()["has_chat_template"] is True


def test_chats_that_have_no_meaning_are_refused(server):
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    error = refused(server, CHAT, messages=say(("user", "x"), ("assistant", "y")))
    assert "the user's last message" in error["message"]
    assert (
        "the user's last message" in refused(server, CHAT, messages=say(("system", "x")))["message"]
    )
    assert refused(server, CHAT, messages=say(("user", "x")), tools=[tool])["param"] == "tools"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_stream_adds_up_to_the_whole(server, path):
    asked: dict[str, object] = {"prompt": PROMPT, "logprobs": 2}
    if path == CHAT:
        asked = {"messages": say(("user", PROMPT)), "logprobs": True, "top_logprobs": 2}
    fields = {**asked, "seed": 5, "max_tokens": 40, "ignore_eos": True, "n": 3}
    whole = {one["index"]: one for one in ask(server, path, **fields)["choices"]}
    texts, rows = dict.fromkeys(whole, ""), {index: [] for index in whole}
    for chunk in chunks(server, path, **fields):
        for one in chunk["choices"]:
            found = one["logprobs"] or {}
            if path == CHAT:
                texts[one["index"]] += one["delta"].get("content") or ""
                rows[one["index"]] += [row["token"] for row in found.get("content") or []]
            else:
                texts[one["index"]] += one["text"]
                rows[one["index"]] += found.get("tokens") or []
    for index, choice in whole.items():
        text = choice["message"]["content"] if path == CHAT else choice["text"]
        assert texts[index] == text
        assert "".join(rows[index]) == text
    if path == COMPLETIONS:
        told = whole[1]["logprobs"]
        sizes = [len(token) for token in told["tokens"]]
        assert told["text_offset"] == [sum(sizes[:place]) for place in range(len(sizes))]


def test_answers_have_the_same_bits_alone_and_beside_others(server):
    draw = random.Random(1)

    def body(number: int) -> dict[str, object]:
        letters = (draw.choice("eta oin shr dlu") for _ in range(draw.choice((3, 40, 300))))
        shared = {"max_tokens": 30, "seed": number, "logprobs": 1, "ignore_eos": True, "n": 2}
        return {"prompt": "".join(letters), **shared}

    bodies = [body(number) for number in range(12)]
    alone = [ask(server, **one)["choices"] for one in bodies]

    def post(one: dict[str, object]) -> object:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            return client.post(COMPLETIONS, json=one).json()["choices"]

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(post, bodies)) == alone
    together = ask(server, **{**bodies[3], "prompt": [one["prompt"] for one in bodies[3:6]]})
    assert together["choices"][:2] == alone[3]


def test_answers_to_one_prompt_are_those_of_its_seeds(server):
    fields = {"prompt": PROMPT, "max_tokens": 10, "temperature": 1, "ignore_eos": True}
    found = ask(server, **fields, n=4, seed=7)
    alone = [ask(server, **fields, seed=7 + number)["choices"][0]["text"] for number in range(4)]
    assert [one["text"] for one in found["choices"]] == alone
    nothing = ask(server, prompt=PROMPT, n=2, max_tokens=0)
    assert [one["text"] for one in nothing["choices"]] == ["", ""]
    assert nothing["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("num_answers", [1, 3])
def test_a_client_that_hangs_up_frees_the_pages_of_its_prompt(folder, num_answers):
    body = {"prompt": [5] * 300, "max_tokens": 300, "ignore_eos": True, "n": num_answers}
    with t5_server(folder, delay_s=0.02) as server:
        with server.client.stream("POST", COMPLETIONS, json={**body, "stream": True}) as reply:
            lines = reply.iter_lines()  # closes the reply when it is forgotten
            next(lines)
            pool = server.engine.scheduler.pool
            assert NUM_PAGES - pool.num_free > 300 // 16
        server.wait_until(lambda: server.is_empty)
        assert server.engine.meter.num_steps < 200
        server.engine.check_integrity()
        assert len(ask(server, prompt=PROMPT, **GREEDY)["choices"]) == 1


def test_a_client_that_gives_up_waiting_leaves_nothing_behind(folder):
    first = {"prompt": [5] * 390, "max_tokens": 390, "ignore_eos": True, "n": 5, "stream": True}
    second = {**first, "prompt": [6] * 390, "n": 100, "stream": False}
    with t5_server(folder, delay_s=0.02) as server:
        with server.client.stream("POST", COMPLETIONS, json=first) as reply:
            lines = reply.iter_lines()  # closes the reply when it is forgotten
            next(lines)
            with pytest.raises(httpx.ReadTimeout):
                server.client.post(COMPLETIONS, json=second, timeout=0.2)
            server.wait_until(lambda: server.engine.num_unfinished == 5)
            assert server.worker.num_open_answers == 5
        server.wait_until(lambda: server.is_empty)
        server.engine.check_integrity()


def test_prompts_beyond_the_encoder_are_refused_and_the_longest_is_answered(server):
    longest = [5] * MAX_POSITIONS
    found = ask(server, prompt=longest, **GREEDY)
    assert found["usage"]["prompt_tokens"] == MAX_POSITIONS
    for fields in ({"prompt": [*longest, 5]}, {"prompt": "x " * MAX_POSITIONS}):
        assert f"context of {MAX_POSITIONS}" in refused(server, **fields)["message"]
    assert "longer than" in refused(server, prompt="etaoin " * 5_000)["message"]
    assert "longer" in refused(server, CHAT, messages=say(("user", "x " * 500)))["message"]
    assert refused(server, prompt=[])["param"] == "prompt"
    assert "empty" in refused(server, prompt=[[5], []])["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"echo": True, "logprobs": 1, "max_tokens": 0}, "echo"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"suffix": "end"}, "suffix"),
    ],
)
def test_what_only_decoders_answer_is_refused_by_its_name(server, fields, param):
    error = refused(server, prompt=PROMPT, **fields)
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")
    harmless = {"echo": False, "prompt_logprobs": None, "suffix": ""}
    assert ask(server, prompt=PROMPT, **GREEDY, **harmless)["choices"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}),
        ("/v1/score", {"text_1": "x", "text_2": "y"}),
        ("/v1/classify", {"input": "x"}),
    ],
)
def test_routes_of_encoders_name_those_that_answer(server, path, fields):
    error = refused(server, path, **fields)
    assert (error["param"], error["code"]) == ("model", "wrong_task")
    assert CHAT in error["message"]
    assert "--task" not in error["message"]


def test_a_template_of_the_folder_comes_first(tmp_path):
    write_t5_folder(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with t5_server(tmp_path) as server:
        turns = say(("user", "first"), ("assistant", "second"))
        tokens = ask(server, "/tokenize", messages=turns)["tokens"]
        assert tokens == server.state.tokenizer.encode("first")
        reply = server.client.post(CHAT, json={"messages": turns, **GREEDY})
        assert reply.status_code == 200
        assert "x-paredown-note" not in reply.headers
