"""The names by which a model is asked for."""

import pytest

from drivers.running_server import running_server
from paredown.errors import ConfigError
from paredown.serve.other_names import OtherNames

BODY = {"prompt": "x", "max_tokens": 1}


def test_aliases_are_listed_once_and_the_own_name_is_none():
    names = OtherNames.of("toy", ["gpt-4o", "toy", "gpt-4o", "other"])
    assert names.aliases == ("gpt-4o", "other")


@pytest.mark.parametrize("alias", ["", "x" * 257, "a\nb", "\x1b[2J", "\u202e"])
def test_what_is_no_name_is_refused(alias):
    with pytest.raises(ConfigError, match="not a name"):
        OtherNames(aliases=(alias,))
    with pytest.raises(ConfigError, match="too many names"):
        OtherNames(aliases=tuple(map(str, range(65))))


def test_a_model_is_listed_and_answers_under_each_name():
    names = OtherNames(aliases=("gpt-4o", "org/model"))
    with running_server(other_names=names) as server:
        listed = server.client.get("/v1/models").json()["data"]
        assert [one["id"] for one in listed] == ["toy", "gpt-4o", "org/model"]
        assert server.client.get("/v1/models/org/model").json()["id"] == "org/model"
        for name in ("toy", "gpt-4o", "org/model", None):
            reply = server.client.post("/v1/completions", json={**BODY, "model": name})
            assert reply.status_code == 200
            assert reply.json()["model"] == "toy"
        reply = server.client.post("/v1/completions", json={**BODY, "model": "gpt-5"})
        assert reply.status_code == 404
        assert "this server has toy, gpt-4o, org/model" in reply.json()["error"]["message"]


def test_any_name_is_taken_where_that_is_wanted():
    with running_server(other_names=OtherNames(any_name=True)) as server:
        for name in ("gpt-4o", "", "x" * 1024):
            reply = server.client.post("/v1/completions", json={**BODY, "model": name})
            assert reply.status_code == 200
        assert [one["id"] for one in server.client.get("/v1/models").json()["data"]] == ["toy"]
