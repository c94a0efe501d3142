"""HttpReward: scores that an address gives.

It gets `POST {"prompts": [...], "answers": [...]}` with the answers of a step, and answers
`{"rewards": [...]}` with a number for each.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2

from paredown.errors import ConfigError, TrainingError
from paredown.json_text import JsonTextError, parse_json
from paredown.units import MEBI

_MAX_BODY_BYTES = 16 * MEBI
# What a server that is busy or restarts answers.
_BUSY = (408, 425, 429)
_CONNECT_S = 10.0
_GOES_ON = "the same command goes on from the last step."


@dataclass(frozen=True, kw_only=True)
class HttpReward:
    """Implements Reward. An address that cannot be reached, is too slow or says that it is busy is
    asked again, `num_tries` times in all, after `wait_s` and then twice as long each time. Proxies
    that the environment names are not used, and redirections are not followed. Raises ConfigError
    for what is no http or https address."""

    url: str
    timeout_s: float = 120.0
    num_tries: int = 5
    wait_s: float = 1.0

    def __post_init__(self) -> None:
        try:
            found = httpx2.URL(self.url)
        except httpx2.InvalidURL as error:
            raise _no_address(self.url) from error
        if found.scheme not in ("http", "https") or not found.host:
            raise _no_address(self.url)

    def scores(self, prompts: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Returns the score of each answer. Raises TrainingError where the address fails."""
        body = json.dumps({"prompts": list(prompts), "answers": list(answers)}).encode()
        timeout = httpx2.Timeout(self.timeout_s, connect=min(_CONNECT_S, self.timeout_s))
        with httpx2.Client(
            trust_env=False,
            follow_redirects=False,
            timeout=timeout,
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        ) as client:
            for number in range(self.num_tries):
                if number:
                    time.sleep(self.wait_s * 2 ** (number - 1))
                try:
                    status, data = self._post(client, body)
                except httpx2.HTTPError as error:
                    seen = f"{type(error).__name__}: {error}"
                    continue
                if status not in _BUSY and status < 500:
                    return _rewards(status, data)
                seen = f"status {status}"
        raise TrainingError(
            f"the reward at {self.url} does not answer",
            seen=f"{seen}, after {self.num_tries} tries",
            remedy=f"Start it; {_GOES_ON}",
        )

    def _post(self, client: httpx2.Client, body: bytes) -> tuple[int, bytes]:
        """Returns the status and the body. Raises ReadTimeout for an answer that comes too
        slowly."""
        data = bytearray()
        last_s = time.monotonic() + self.timeout_s
        with client.stream("POST", self.url, content=body) as response:
            for piece in response.iter_bytes():
                data += piece
                if len(data) > _MAX_BODY_BYTES:
                    raise _garbage(f"more than {_MAX_BODY_BYTES // MEBI} MiB")
                if time.monotonic() > last_s:
                    raise httpx2.ReadTimeout(f"nothing whole within {self.timeout_s:g} s")
            return response.status_code, bytes(data)


def _rewards(status: int, data: bytes) -> list[float]:
    if status != 200:
        raise TrainingError(
            "the reward refuses to score",
            seen=f"status {status}: {data[:200].decode(errors='replace')}",
            remedy=f"Mend it; {_GOES_ON}",
        )
    try:
        found = parse_json(data)
    except JsonTextError as error:
        raise _garbage(str(error)) from error
    rewards = found.get("rewards") if isinstance(found, dict) else None
    if not isinstance(rewards, list):
        raise _garbage(found)
    for one in rewards:
        if isinstance(one, bool) or not isinstance(one, int | float):
            raise _garbage(one)
    return [_number(one) for one in rewards]


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise _garbage(value) from error


def _garbage(seen: object) -> TrainingError:
    return TrainingError(
        "the reward answers with something else than rewards",
        seen=seen,
        remedy=f'Let it answer {{"rewards": [...]}} with a number for each answer; {_GOES_ON}',
    )


def _no_address(url: str) -> ConfigError:
    return ConfigError(
        "a reward's address is none", seen=url, remedy="Give an http or https address."
    )
