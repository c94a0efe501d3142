"""StepLoad and StepCost: the work of an engine's step, and the interface that predicts its time.

A step computes chunks of sequences. The cost of a chunk depends only on its length and its start.
That of a step depends only on sums over its chunks, which the scheduler's simulator adds up.
"""

from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class StepLoad:
    """One step. A token attends to itself and to the tokens before it in its sequence.

    `num_tokens` counts the tokens of all chunks, `num_logits` the rows of logits, `num_requests`
    the chunks, and `num_first_tokens` the chunks that end a prompt. The engine's work per request
    (taking it in, its pages, its sampling state) is counted with its first token.

    `attention_pairs` sums query-key pairs. `kv_tokens_read` sums the tokens whose keys and values
    a chunk reads, its context and itself. The `windowed` fields are the same sums for layers with
    a sliding window, one for each of the model's windows (`ModelSpec.windows`).

    In an encoder-decoder these are sums over the decoder's tokens. `num_encoder_tokens` counts the
    tokens that its encoder reads in the step, `encoder_pairs` their pairs with all tokens of their
    text. `cross_pairs` and `cross_tokens_read` are as the sums above, of the decoder's tokens with
    those of their encoder's text.
    """

    num_tokens: int
    num_logits: int
    num_requests: int
    attention_pairs: int
    kv_tokens_read: int
    windowed_pairs: tuple[int, ...] = ()
    windowed_kv_tokens_read: tuple[int, ...] = ()
    num_first_tokens: int = 0
    num_encoder_tokens: int = 0
    encoder_pairs: int = 0
    cross_pairs: int = 0
    cross_tokens_read: int = 0

    @property
    def asked_share(self) -> float:
        """The share of the tokens with a row of logits. Our core computes only these after the
        keys and values of the last layer."""
        return self.num_logits / self.num_tokens

    @property
    def of_encoder(self) -> "StepLoad":
        """The load of the encoder: all of its tokens are asked for, although it has no logits."""
        return StepLoad(
            num_tokens=self.num_encoder_tokens,
            num_logits=self.num_encoder_tokens,
            num_requests=self.num_requests,
            attention_pairs=self.encoder_pairs,
            kv_tokens_read=self.num_encoder_tokens,
        )

    @property
    def last_layer(self) -> "StepLoad":
        """The load of the last layer, windows aside: each row of logits attends to all tokens of
        its chunk, and each chunk has equally many rows."""
        if self.num_logits >= self.num_tokens:
            return self
        rows = self.num_logits / self.num_requests
        pairs = min(self.attention_pairs, round(rows * self.kv_tokens_read))
        across = min(self.cross_pairs, round(rows * self.cross_tokens_read))
        read = min(rows, 1.0)
        return replace(
            self,
            attention_pairs=pairs,
            cross_pairs=across,
            cross_tokens_read=round(read * self.cross_tokens_read),
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
    """Predicts the seconds of steps of one model on one machine."""

    def step_s(self, step: StepLoad) -> float: ...


def chunk_pairs(start: int, num_tokens: int, window: int | None = None) -> int:
    """Returns the query-key pairs of `num_tokens` tokens from position `start` on. The token at
    position p meets p + 1 keys, or `window` where that is less."""
    if window is None:
        return num_tokens * start + num_tokens * (num_tokens + 1) // 2
    growing = min(num_tokens, max(0, window - start))
    return growing * start + growing * (growing + 1) // 2 + (num_tokens - growing) * window


def chunk_kv_tokens(start: int, num_tokens: int, window: int | None = None) -> int:
    """Returns the tokens whose keys and values a chunk reads: all up to its end, or with a window
    only from the first one that its first token sees."""
    if window is None:
        return start + num_tokens
    return min(start, window - 1) + num_tokens


def decode_load(num_requests: int, context: int, windows: tuple[int, ...] = ()) -> StepLoad:
    """Returns the load of one token for each of `num_requests` sequences with `context` tokens,
    this one included."""
    return _chunks_load(num_requests, context - 1, 1, windows)


def prefill_load(num_tokens: int, start: int = 0, windows: tuple[int, ...] = ()) -> StepLoad:
    """Returns the load of one chunk of a prompt from position `start` on, with a row of logits at
    its end."""
    return prompts_load(1, num_tokens, start, windows)


def prompts_load(
    num_requests: int, num_tokens: int, start: int = 0, windows: tuple[int, ...] = ()
) -> StepLoad:
    """Returns the load of several such prompts at once."""
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


def reading_across(load: StepLoad, prompt_tokens: int) -> StepLoad:
    """Returns the load with decoder tokens that read `prompt_tokens` tokens of an encoder each."""
    return replace(
        load,
        cross_pairs=load.num_tokens * prompt_tokens,
        cross_tokens_read=load.num_requests * prompt_tokens,
    )


def encoded_prompts_load(num_requests: int, prompt_tokens: int) -> StepLoad:
    """Returns the load of the first step of requests to an encoder-decoder: each has its prompt
    encoded, and the first token of its answer."""
    load = reading_across(prompts_load(num_requests, 1), prompt_tokens)
    return replace(
        load,
        num_encoder_tokens=num_requests * prompt_tokens,
        encoder_pairs=num_requests * prompt_tokens**2,
    )
