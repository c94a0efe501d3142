"""Arrival: a request with its time of arrival. Functions here draw many of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paredown.errors import ConfigError
from paredown.shown import quoted

# As in Mooncake's traces, where one block id stands for this many tokens of a prompt.
BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request of `num_input_tokens` that asks for exactly `num_output_tokens`, `at_s` seconds
    after the first. Requests share the tokens of their common leading `block_ids`; without any, a
    prompt is unlike all others."""

    at_s: float
    num_input_tokens: int
    num_output_tokens: int
    block_ids: tuple[int, ...] = ()

    def prompt(self, vocab_size: int, seed: Sequence[int]) -> list[int]:
        """Returns random token ids, uniform over the vocabulary. A block's tokens follow from its
        id, and all others from `seed`, which differs from request to request."""
        left, found = self.num_input_tokens, list[int]()
        for block_id in self.block_ids:
            rng = np.random.default_rng((1, block_id))
            found += rng.integers(vocab_size, size=BLOCK_TOKENS).tolist()[:left]
            left = self.num_input_tokens - len(found)
        found += np.random.default_rng((0, *seed)).integers(vocab_size, size=left).tolist()
        return found


@dataclass(frozen=True, slots=True)
class Length:
    """A number of tokens, or a range that is drawn from uniformly."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> "Length":
        """Parses "128" or "16-1024". Raises ConfigError."""
        parts = text.split("-")
        if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
            raise ConfigError(
                "this is not a number of tokens", seen=quoted(text), remedy="Write 128, or 16-1024."
            )
        low, high = int(parts[0]), int(parts[-1])
        if not 1 <= low <= high:
            raise ConfigError(
                "this is not a valid number or range of tokens",
                seen=text,
                remedy="Use 1 or more, the smaller number first.",
            )
        return cls(low, high)

    def draw(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.low, self.high + 1))


def together(batch: int, num_input_tokens: int, num_output_tokens: int) -> list[Arrival]:
    """Returns `batch` requests at once, with unrelated prompts."""
    return [
        Arrival(at_s=0.0, num_input_tokens=num_input_tokens, num_output_tokens=num_output_tokens)
    ] * batch


def drawn(num_requests: int, inputs: Length, outputs: Length, seed: int) -> list[Arrival]:
    """Returns requests of random lengths that all arrive at once; `poisson` spreads them. Raises
    ConfigError for no requests."""
    if num_requests < 1:
        raise ConfigError("there are no requests to run", seen=num_requests, remedy="Ask for some.")
    rng = np.random.default_rng(seed)
    return [
        Arrival(at_s=0.0, num_input_tokens=inputs.draw(rng), num_output_tokens=outputs.draw(rng))
        for _ in range(num_requests)
    ]


def poisson(arrivals: Sequence[Arrival], rate_per_s: float, seed: int) -> list[Arrival]:
    """Returns the same requests as a Poisson process: gaps are independent and exponential with
    mean 1 / rate, and the first arrives at once. Raises ConfigError for an invalid rate."""
    if not (math.isfinite(rate_per_s) and rate_per_s > 0):
        raise ConfigError(
            "the rate of requests is not a positive number",
            seen=rate_per_s,
            remedy="Use requests per second, more than 0; without a rate all come at once.",
        )
    gaps = np.random.default_rng((2, seed)).exponential(1 / rate_per_s, len(arrivals))
    times = np.cumsum(gaps) - gaps[0]
    return [replace(one, at_s=float(at)) for one, at in zip(arrivals, times, strict=True)]


def fit(arrivals: Sequence[Arrival], max_tokens: int) -> tuple[list[Arrival], int]:
    """Cuts the requests of a trace for a model that holds `max_tokens` per request: first the end
    of prompts, then answers. Also returns how many requests were cut."""
    fitted, num_cut = [], 0
    for one in arrivals:
        num_output = min(one.num_output_tokens, max_tokens - 1)
        num_input = min(one.num_input_tokens, max_tokens - num_output)
        num_cut += (num_input, num_output) != (one.num_input_tokens, one.num_output_tokens)
        fitted.append(replace(one, num_input_tokens=num_input, num_output_tokens=num_output))
    return fitted, num_cut
