"""ClientOptions: how a stranger's server is asked."""

from typing import TypedDict

import httpx2

_CONNECT_S = 10.0


class ClientOptions(TypedDict):
    """Arguments of httpx2.Client and httpx2.AsyncClient."""

    headers: dict[str, str]
    trust_env: bool
    follow_redirects: bool
    timeout: httpx2.Timeout


def json_client_options(timeout_s: float) -> ClientOptions:
    """Returns those for JSON both ways, where nothing may take longer than `timeout_s`. Proxies and
    keys that the environment names for other programs are not used, and redirections are not
    followed."""
    return ClientOptions(
        headers={"Content-Type": "application/json", "Accept": "application/json"},
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
    )
