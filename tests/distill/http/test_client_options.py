"""A stranger's server is asked directly, and not for longer than was said."""

import httpx2
import pytest

from paredown.distill.http.client_options import json_client_options


@pytest.mark.parametrize(("timeout_s", "connect_s"), [(300.0, 10.0), (0.5, 0.5)])
def test_nothing_takes_longer_than_the_timeout(timeout_s: float, connect_s: float) -> None:
    with httpx2.Client(**json_client_options(timeout_s)) as client:
        found = client.timeout
    assert (found.connect, found.read, found.write) == (connect_s, timeout_s, timeout_s)


def test_proxies_redirections_and_keys_of_others_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with httpx2.Client(**json_client_options(1.0)) as client:
        assert not client.trust_env
        assert not client.follow_redirects
        assert client.headers["content-type"] == client.headers["accept"] == "application/json"
