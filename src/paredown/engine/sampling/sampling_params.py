"""SamplingParams: how the tokens of one request are chosen and when it ends."""

import math
from dataclasses import dataclass

from paredown.errors import RequestError

MAX_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_STOP_TOKENS = 256
MAX_TEMPERATURE = 100.0


class ParameterError(RequestError):
    """A sampling parameter out of its range; `field` names it."""

    def __init__(self, field: str, *, seen: object, remedy: str) -> None:
        self.field = field
        super().__init__(f"{field} is out of range", seen=seen, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Checked when made. Raises ParameterError with the field, the value and the remedy.

    `temperature` 0 is greedy. `top_k` None (or 0) keeps every token. `seed` None lets the engine
    draw one. `max_tokens` None means as many as the context holds. `logprobs` None asks for none,
    0 for the chosen token's, n for the n best tokens' as well.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    max_tokens: int | None = 128
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        self._check_number("temperature", self.temperature, "Use 0 (greedy) to 100.")
        if not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise ParameterError(
                "temperature", seen=self.temperature, remedy="Use 0 (greedy) to 100."
            )
        self._check_number("top_p", self.top_p, "Use a number above 0 and at most 1.")
        if not 0 < self.top_p <= 1:
            raise ParameterError(
                "top_p", seen=self.top_p, remedy="Use a number above 0 and at most 1."
            )
        self._check_int("top_k", self.top_k, 0, 2**31, "Use 1 or more, or 0 to keep every token.")
        self._check_int(
            "seed", self.seed, -(2**63), 2**63 - 1, "Use an integer that fits 64 bits with a sign."
        )
        self._check_int("max_tokens", self.max_tokens, 1, 2**31, "Use 1 or more.")
        self._check_int("logprobs", self.logprobs, 0, MAX_LOGPROBS, f"Use 0 to {MAX_LOGPROBS}.")
        self._check_stops()

    def _check_number(self, field: str, value: object, remedy: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ParameterError(field, seen=repr(value), remedy=remedy)
        if isinstance(value, float) and not math.isfinite(value):
            raise ParameterError(field, seen=value, remedy=remedy)

    def _check_int(self, field: str, value: object, low: int, high: int, remedy: str) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ParameterError(field, seen=repr(value), remedy=remedy)

    def _check_stops(self) -> None:
        if not isinstance(self.stop, tuple) or len(self.stop) > MAX_STOPS:
            raise ParameterError(
                "stop", seen=repr(self.stop)[:80], remedy=f"Give a tuple of at most {MAX_STOPS}."
            )
        for text in self.stop:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_CHARS:
                raise ParameterError(
                    "stop",
                    seen=repr(text)[:80],
                    remedy=f"A stop string has 1 to {MAX_STOP_CHARS} characters.",
                )
        if not isinstance(self.stop_token_ids, tuple) or len(self.stop_token_ids) > MAX_STOP_TOKENS:
            raise ParameterError(
                "stop_token_ids",
                seen=repr(self.stop_token_ids)[:80],
                remedy=f"Give a tuple of at most {MAX_STOP_TOKENS} token ids.",
            )
        for token_id in self.stop_token_ids:
            self._check_int(
                "stop_token_ids", token_id, 0, 2**31, "A token id is an integer from 0 on."
            )
