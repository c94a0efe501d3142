"""Completions: what they take beside their prompt."""

import pytest

from drivers.completions_client import TOKENS, ask, refused
from drivers.running_server import running_server
from fakes.toy_executor import ToyTokenizer
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.models.text.fill_in_middle import FillInMiddle


@pytest.fixture(scope="module")
def server():
    with running_server() as running:
        yield running


def test_no_tokens_at_all_read_the_prompt(server):
    found = ask(server, max_tokens=0, n=2)
    assert found["choices"] == [
        {"index": number, "text": "", "logprobs": None, "finish_reason": "length"}
        for number in range(2)
    ]
    usage = found["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(TOKENS), 0)
    server.wait_until(lambda: server.is_empty)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 0, "min_tokens": 1}, "min_tokens"),
        ({"n": 129}, "n"),
    ],
)
def test_what_cannot_be_served_is_named(server, fields, param):
    assert refused(server, **fields)["param"] == param


def test_a_suffix_stands_behind_the_gap():
    tokenizer = ToyTokenizer()
    tokenizer.fill_in_middle = FillInMiddle(before_id=300, after_id=301, gap_id=302, end_ids=(303,))
    with running_server(tokenizer=tokenizer) as server:
        found = ask(server, suffix="!")
        wanted = [300, *TOKENS, 301, *tokenizer.encode("!"), 302]
        assert found["usage"]["prompt_tokens"] == len(wanted)
        assert found["choices"] == ask(server, prompt=wanted)["choices"]
        ended = ask(server, suffix="!", allowed_token_ids=[303])["choices"][0]
        assert (ended["text"], ended["finish_reason"]) == ("", "stop")
        assert refused(server, suffix="!", prompt=TOKENS)["param"] == "suffix"
        assert refused(server, suffix="x" * 200, prompt="y" * 100)["message"]
        assert ask(server, suffix="")["choices"][0]["text"] == ask(server)["choices"][0]["text"]


def test_special_tokens_may_be_left_out():
    tokenizer = ToyTokenizer()
    tokenizer.prompt_prefix = (400,)
    with running_server(tokenizer=tokenizer) as server:
        for fields, wanted in (({}, [400, *TOKENS]), ({"add_special_tokens": False}, TOKENS)):
            assert ask(server, **fields)["choices"] == ask(server, prompt=wanted)["choices"]


def answers(server, **fields) -> set[str]:
    fields = {"temperature": None, "max_tokens": 12, **fields}
    return {ask(server, **fields)["choices"][0]["text"] for _ in range(6)}


def test_settings_of_the_model_hold_where_a_request_gives_none():
    """The case of a checkpoint whose generation_config.json has top_k 1."""
    with running_server(sampling_defaults=SamplingDefaults(top_k=1)) as server:
        assert len(answers(server)) == 1
        assert len(answers(server, top_k=0)) > 1
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 12}
        replies = [server.client.post("/v1/chat/completions", json=chat).json() for _ in range(6)]
        assert len({one["choices"][0]["message"]["content"] for one in replies}) == 1
    with running_server() as server:
        assert len(answers(server)) > 1


def test_the_models_length_is_a_default_as_well():
    with running_server(sampling_defaults=SamplingDefaults(max_tokens=21)) as server:
        for fields, num in (({"max_tokens": None}, 21), ({"max_tokens": 3}, 3)):
            found = ask(server, ignore_eos=True, **fields)
            assert found["usage"]["completion_tokens"] == num


def test_as_many_answers_as_the_api_allows(server):
    found = ask(server, n=128, seed=3, temperature=1, max_tokens=3)["choices"]
    assert [one["index"] for one in found] == list(range(128))
    alone = ask(server, seed=3 + 77, temperature=1, max_tokens=3)["choices"][0]
    assert found[77]["text"] == alone["text"]
    server.wait_until(lambda: server.is_empty)


def test_more_answers_than_ever_wait_are_refused_for_good():
    with running_server(config=ScheduleConfig(max_waiting=100)) as server:
        assert "max-waiting" in refused(server, n=128)["message"]


def test_labels_have_no_effect(server):
    labels = {
        "metadata": {"a": "b"}, "service_tier": "flex", "store": False, "user": "u",
        "safety_identifier": "s", "prompt_cache_key": "k", "prompt_cache_retention": "24h",
    }  # fmt: skip
    assert ask(server, **labels)["choices"] == ask(server)["choices"]
    assert refused(server, metadata={str(i): "x" for i in range(100)})["param"] == "metadata"


def test_sixteen_stops_are_served(server):
    text = ask(server)["choices"][0]["text"]
    stops = [f"never {i}" for i in range(15)]
    found = ask(server, stop=[*stops, text[2]])["choices"][0]
    assert found["text"] == text[: text.index(text[2])]
    assert refused(server, stop=[*stops, "a", "b"])["param"] == "stop"
