"""Teacher: an address that answers as the OpenAI API does, asked once."""

import asyncio
import math
import os
from dataclasses import dataclass

import httpx2

from paredown.distill.black_box.answer import Answer, GarbageError, parse_answer
from paredown.distill.black_box.request import TeacherRequest
from paredown.distill.http.address import checked_address
from paredown.distill.http.bounded_body import BoundedBody, LongBodyError
from paredown.distill.http.busy import is_busy, wait_of
from paredown.distill.http.client_options import json_client_options
from paredown.errors import ConfigError
from paredown.json_text import JsonTextError, parse_json
from paredown.shown import shown

# The address, the key or the model is wrong: no other request would be answered either.
_WRONG_PLACE = {401, 403, 404, 405}
# The teacher may have computed until then; one that is overloaded (503) has not begun.
_TOO_LATE = 408
_OVERLOADED = 503
# A code of status 429 that no waiting mends.
_NO_CREDIT = "insufficient_quota"
_NO_ADDRESS = "that is not the address of a server"
_GIVE_ADDRESS = "Give --address http://HOST:PORT, or one that ends in /v1."


@dataclass(frozen=True, kw_only=True)
class TeacherConfig:
    """A teacher.

    `address`           as http://localhost:8000; /v1 is added where it has no path
    `model`             its name there
    `api_key_variable`  the environment variable that holds the key; None sends none
    `timeout_s`         seconds for one whole answer
    """

    address: str
    model: str
    api_key_variable: str | None = None
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        self.url()
        if not self.model:
            raise ConfigError("the model has no name", seen="", remedy="Give --model NAME.")
        if not 0 < self.timeout_s < math.inf:
            raise ConfigError(
                "no answer can come in that time",
                seen=self.timeout_s,
                remedy="Give --timeout-s more than 0.",
            )

    def url(self) -> str:
        """Returns where chats are completed. Raises ConfigError."""
        found = checked_address(
            self.address,
            what=_NO_ADDRESS,
            remedy=_GIVE_ADDRESS,
            without_password="Name the environment variable that holds the key "
            "(--api-key-variable).",
        )
        if found.query:
            raise ConfigError(_NO_ADDRESS, seen=self.address, remedy=_GIVE_ADDRESS)
        base = str(found).rstrip("/")
        return f"{base}/v1/chat/completions" if found.path == "/" else f"{base}/chat/completions"

    def key(self) -> str | None:
        """Returns the key. Raises ConfigError where the variable has none."""
        name = self.api_key_variable
        if name is None:
            return None
        key = os.environ.get(name, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigError(
                f"the environment variable {name} holds no key",
                seen="a key that no header can hold" if key else "nothing",
                remedy=f"Set it: `export {name}=...`.",
            )
        return key


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a request has no answer.

    `reason`         one of few, to be counted
    `detail`         what was seen
    `may_retry`      the same request may be answered later
    `ends_all`       no other request would be answered either
    `wait_s`         how long the teacher asks to be left alone
    `may_have_cost`  the teacher may have computed, and counted, an answer
    """

    reason: str
    detail: str
    may_retry: bool = False
    ends_all: bool = False
    wait_s: float | None = None
    may_have_cost: bool = False


class Teacher:
    """Asks over connections that stay open. Proxies and keys that the environment names for other
    programs are not used, and redirections are not followed."""

    def __init__(self, config: TeacherConfig, max_connections: int) -> None:
        self._config = config
        self._url = config.url()
        self._key = config.key()
        options = json_client_options(config.timeout_s)
        if self._key is not None:
            options["headers"]["Authorization"] = f"Bearer {self._key}"
        self._client = httpx2.AsyncClient(
            **options,
            limits=httpx2.Limits(
                max_connections=max_connections, max_keepalive_connections=max_connections
            ),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, request: TeacherRequest) -> Answer | Failure:
        """Sends the request once."""
        try:
            async with asyncio.timeout(self._config.timeout_s):
                status, headers, data = await self._post(request.body())
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return Failure(reason="not reached", detail=self._told(error), may_retry=True)
        except (TimeoutError, httpx2.TimeoutException):
            detail = f"nothing within {self._config.timeout_s:g} s"
            return _lost("no answer in time", detail)
        except httpx2.HTTPError as error:
            return _lost("hung up", self._told(error))
        except LongBodyError as error:
            return _lost("garbage", str(error))
        if not 200 <= status < 300:
            return self._refusal(status, headers, data)
        try:
            return parse_answer(data)
        except GarbageError as error:
            return _lost("garbage", str(error))

    async def _post(self, body: bytes) -> tuple[int, httpx2.Headers, bytes]:
        async with self._client.stream("POST", self._url, content=body) as response:
            answer = BoundedBody()
            async for piece in response.aiter_bytes():
                answer.add(piece)
            return response.status_code, response.headers, answer.data

    def _refusal(self, status: int, headers: httpx2.Headers, data: bytes) -> Failure:
        message, code = _error_of(data)
        return Failure(
            reason=f"status {status}",
            detail=self._told(message),
            may_retry=is_busy(status),
            ends_all=status in _WRONG_PLACE or status < 400 or code == _NO_CREDIT,
            wait_s=wait_of(status, headers),
            may_have_cost=status == _TOO_LATE or (status >= 500 and status != _OVERLOADED),
        )

    def _told(self, what: object) -> str:
        """Returns it on one line, without the key: some servers repeat it."""
        text = str(what)
        return shown(text if self._key is None else text.replace(self._key, "***"))


def _lost(reason: str, detail: str) -> Failure:
    return Failure(reason=reason, detail=detail, may_retry=True, may_have_cost=True)


def _error_of(data: bytes) -> tuple[str, object]:
    """Returns the message and the code of an error, as far as the body has them."""
    try:
        body = parse_json(data)
    except JsonTextError:
        return "", None
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return str(error.get("message", ""))[:1000], error.get("code")
    return (error[:1000] if isinstance(error, str) else ""), None
