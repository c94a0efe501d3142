"""StepLoad and StepCost: what a step of the engine is asked for, and what says how long it takes.

A step computes chunks of sequences. Of a chunk only its length and where it starts matter for its
cost, and of a step only the sums: the scheduler's simulator adds them up as it goes.
"""

from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class StepLoad:
    """One step. A token attends to itself and to what is before it in its sequence.

    `num_tokens` counts the tokens of all chunks, `num_logits` the rows of logits, `num_requests`
    the chunks, `num_first_tokens` those that end a prompt: what the engine does once for a request
    (taking it in, its pages, its sampling state) goes with its first token. `attention_pairs` sums
    query-key pairs, `kv_tokens_read` the tokens whose keys and values a chunk reads (its context
    and itself); the `windowed` ones are the same sums for the layers of the model that attend
    through a sliding window, one for each of its windows (`ModelSpec.windows`).
    """

    num_tokens: int
    num_logits: int
    num_requests: int
    attention_pairs: int
    kv_tokens_read: int
    windowed_pairs: tuple[int, ...] = ()
    windowed_kv_tokens_read: tuple[int, ...] = ()
    num_first_tokens: int = 0

    @property
    def asked_share(self) -> float:
        """The share of the tokens with a row of logits: the only ones that our core computes from
        the keys and values of the last layer on."""
        return self.num_logits / self.num_tokens

    @property
    def last_layer(self) -> "StepLoad":
        """What the last layer attends to, windows aside: each row of logits, as many to each chunk,
        to all tokens of its chunk."""
        if self.num_logits >= self.num_tokens:
            return self
        rows = self.num_logits / self.num_requests
        pairs = min(self.attention_pairs, round(rows * self.kv_tokens_read))
        read = min(rows, 1.0)
        return replace(
            self,
            attention_pairs=pairs,
            windowed_pairs=tuple(
                min(own, round(rows * keys))
                for own, keys in zip(self.windowed_pairs, self.windowed_kv_tokens_read, strict=True)
            ),
            kv_tokens_read=round(read * self.kv_tokens_read),
            windowed_kv_tokens_read=tuple(
                round(read * keys) for keys in self.windowed_kv_tokens_read
            ),
        )


class StepCost(Protocol):
    """Seconds of steps of one model on one machine."""

    def step_s(self, step: StepLoad) -> float: ...


def chunk_pairs(start: int, num_tokens: int, window: int | None = None) -> int:
    """Query-key pairs of `num_tokens` tokens from position `start` on: the token at position p
    meets p + 1 keys, or `window` where that is less."""
    if window is None:
        return num_tokens * start + num_tokens * (num_tokens + 1) // 2
    growing = min(num_tokens, max(0, window - start))
    return growing * start + growing * (growing + 1) // 2 + (num_tokens - growing) * window


def chunk_kv_tokens(start: int, num_tokens: int, window: int | None = None) -> int:
    """Tokens whose keys and values a chunk reads: all up to its end; with a window not those that
    its first token does not see any more."""
    if window is None:
        return start + num_tokens
    return min(start, window - 1) + num_tokens


def decode_load(num_requests: int, context: int, windows: tuple[int, ...] = ()) -> StepLoad:
    """One token for each of `num_requests` sequences that have `context` tokens, it included."""
    return _chunks_load(num_requests, context - 1, 1, windows)


def prefill_load(num_tokens: int, start: int = 0, windows: tuple[int, ...] = ()) -> StepLoad:
    """One chunk of a prompt from position `start` on, with a row of logits at its end."""
    return prompts_load(1, num_tokens, start, windows)


def prompts_load(
    num_requests: int, num_tokens: int, start: int = 0, windows: tuple[int, ...] = ()
) -> StepLoad:
    """The same for several prompts at once."""
    load = _chunks_load(num_requests, start, num_tokens, windows)
    return replace(load, num_first_tokens=num_requests)


def _chunks_load(
    num_requests: int, start: int, num_tokens: int, windows: tuple[int, ...]
) -> StepLoad:
    return StepLoad(
        num_tokens=num_requests * num_tokens,
        num_logits=num_requests,
        num_requests=num_requests,
        attention_pairs=num_requests * chunk_pairs(start, num_tokens),
        kv_tokens_read=num_requests * chunk_kv_tokens(start, num_tokens),
        windowed_pairs=tuple(
            num_requests * chunk_pairs(start, num_tokens, window) for window in windows
        ),
        windowed_kv_tokens_read=tuple(
            num_requests * chunk_kv_tokens(start, num_tokens, window) for window in windows
        ),
    )
