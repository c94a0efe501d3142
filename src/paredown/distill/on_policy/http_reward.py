"""HttpReward: scores that an address gives.

It gets `POST {"prompts": [...], "answers": [...]}` with the answers of a step, and answers
`{"rewards": [...]}` with a number for each.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2

from paredown.distill.http.address import checked_address
from paredown.distill.http.bounded_body import BoundedBody, LongBodyError
from paredown.distill.http.busy import MAX_WAIT_S, is_busy, wait_of
from paredown.distill.http.client_options import json_client_options
from paredown.errors import TrainingError
from paredown.json_text import JsonTextError, parse_json
from paredown.units import format_duration

_GOES_ON = "the same command goes on from the last step."


@dataclass(frozen=True, kw_only=True)
class HttpReward:
    """Implements Reward. An address that cannot be reached, is too slow or says that it is busy is
    asked again, `num_tries` times in all, after `wait_s` and then twice as long each time, or after
    what it asks for. Raises ConfigError for what is no http or https address, and for one that
    holds a password."""

    url: str
    timeout_s: float = 120.0
    num_tries: int = 5
    wait_s: float = 1.0

    def __post_init__(self) -> None:
        checked_address(
            self.url,
            what="a reward's address is none",
            remedy="Give an http or https address.",
            without_password="Give the address without it; a proxy beside the training can add it.",
        )

    def scores(self, prompts: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Returns the score of each answer. Raises TrainingError where the address fails."""
        body = json.dumps({"prompts": list(prompts), "answers": list(answers)}).encode()
        seen, asked_wait_s = "", 0.0
        with httpx2.Client(**json_client_options(self.timeout_s)) as client:
            for number in range(self.num_tries):
                if number:
                    time.sleep(max(asked_wait_s, self.wait_s * 2 ** (number - 1)))
                try:
                    status, headers, data = self._post(client, body)
                except httpx2.HTTPError as error:
                    seen, asked_wait_s = f"{type(error).__name__}: {error}", 0.0
                    continue
                if not is_busy(status):
                    return _rewards(status, data)
                seen, asked_wait_s = f"status {status}", wait_of(status, headers) or 0.0
                if asked_wait_s > MAX_WAIT_S:
                    raise TrainingError(
                        f"the reward at {self.url} wants no request for "
                        f"{format_duration(asked_wait_s)}",
                        seen=seen,
                        remedy=f"Wait for it; {_GOES_ON}",
                    )
        raise TrainingError(
            f"the reward at {self.url} does not answer",
            seen=f"{seen}, after {self.num_tries} tries",
            remedy=f"Start it; {_GOES_ON}",
        )

    def _post(self, client: httpx2.Client, body: bytes) -> tuple[int, httpx2.Headers, bytes]:
        """Returns the status, the headers and the body. Raises ReadTimeout for an answer that comes
        too slowly."""
        answer = BoundedBody()
        last_s = time.monotonic() + self.timeout_s
        with client.stream("POST", self.url, content=body) as response:
            for piece in response.iter_bytes():
                try:
                    answer.add(piece)
                except LongBodyError as error:
                    raise _garbage(str(error)) from error
                if time.monotonic() > last_s:
                    raise httpx2.ReadTimeout(f"nothing whole within {self.timeout_s:g} s")
            return response.status_code, response.headers, answer.data


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
