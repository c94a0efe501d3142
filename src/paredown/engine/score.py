"""Score: the log-likelihood of a text as lm-evaluation-harness counts it (Gao et al., 2024, zenodo
12608602; its lm_eval/api/model.py and utils.py).

Context and continuation are encoded as one text. The continuation's tokens are those after as many
as the context alone has. Trailing spaces of the context count as part of the continuation. An empty
context becomes the tokenizer's bos token, or its eos token if there is no bos. A window, including
the last scored token, fits in the model's context.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import RequestError
from paredown.executors.sampler import Logprobs
from paredown.shown import quoted

Text = str | list[int]


class ScoringTokenizer(Protocol):
    """The part of a tokenizer that scoring uses."""

    @property
    def bos_token_id(self) -> int | None: ...

    @property
    def prompt_prefix(self) -> tuple[int, ...]: ...

    @property
    def prefix_token_id(self) -> int | None: ...

    def encode(self, text: str, /) -> list[int]: ...

    def render_chat(self, messages: list[dict[str, object]], /) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Score:
    """The score of a continuation. For each of its tokens it holds the natural log-probability
    under the raw logits, and whether the token is the most likely one. `num_dropped_tokens` counts
    the tokens that were cut from the start of the context."""

    token_ids: list[int]
    logprobs: list[float]
    are_greedy: list[bool]
    num_dropped_tokens: int = 0

    @property
    def logprob(self) -> float:
        """Returns the sum: the log-probability of the whole continuation."""
        return math.fsum(self.logprobs)

    @property
    def is_greedy(self) -> bool:
        """Returns whether greedy decoding would produce the continuation."""
        return all(self.are_greedy)

    @classmethod
    def joined(cls, parts: Sequence["Score"]) -> "Score":
        """Joins the scores of consecutive continuations."""
        return cls(
            token_ids=[one for part in parts for one in part.token_ids],
            logprobs=[one for part in parts for one in part.logprobs],
            are_greedy=[one for part in parts for one in part.are_greedy],
            num_dropped_tokens=sum(part.num_dropped_tokens for part in parts),
        )


@dataclass(frozen=True, kw_only=True)
class ScoredWindow:
    """Tokens that are computed together; the last `num_scored` of them are scored."""

    token_ids: list[int]
    num_scored: int
    num_dropped_tokens: int = 0

    def score(self, logprobs: Sequence[Logprobs]) -> Score:
        """Returns the score. `logprobs` covers every token but the first."""
        scored = logprobs[-self.num_scored :]
        assert len(logprobs) == len(self.token_ids) - 1
        return Score(
            token_ids=[one.chosen.token_id for one in scored],
            logprobs=[one.chosen.logprob for one in scored],
            are_greedy=[one.chosen.token_id == one.top[0].token_id for one in scored],
            num_dropped_tokens=self.num_dropped_tokens,
        )


def scoring_params(window: ScoredWindow) -> SamplingParams:
    """Returns parameters that make the engine score a window. All tokens but the last form the
    prompt; the last is drawn with no alternative."""
    return SamplingParams(
        temperature=0,
        max_tokens=1,
        allowed_token_ids=(window.token_ids[-1],),
        ignore_eos=True,
        logprobs=1,
        prompt_logprobs=1,
    )


def encode_pair(
    tokenizer: ScoringTokenizer, context: Text, continuation: Text
) -> tuple[list[int], list[int]]:
    """Returns the tokens of both; neither is empty. Two texts are encoded together; if one is
    already token ids, the other is encoded alone. Raises RequestError."""
    if isinstance(context, str) and isinstance(continuation, str):
        stripped = context.rstrip()
        continuation = context[len(stripped) :] + continuation
        before = encode_text(tokenizer, stripped) if stripped else []
        if before:
            after = encode_text(tokenizer, stripped + continuation)[len(before) :]
        else:
            after = tokenizer.encode(continuation)
    else:
        before = encode_text(tokenizer, context) if isinstance(context, str) else list(context)
        after = (
            tokenizer.encode(continuation) if isinstance(continuation, str) else list(continuation)
        )
    if not before and after:
        prefix = _prefix(tokenizer)
        before, after = (after[:1], after[1:]) if after[0] == prefix else ([prefix], after)
    if not after:
        raise RequestError(
            "a continuation has no tokens of its own",
            seen=quoted(continuation),
            remedy="Give one that goes on after the context.",
        )
    return before, after


def encode_text(tokenizer: ScoringTokenizer, text: str) -> list[int]:
    """Encodes a text like a prompt, but adds no second bos token and nothing after the text, since
    its continuation is scored there."""
    token_ids = tokenizer.encode(text)
    if token_ids[:1] == [tokenizer.bos_token_id]:
        return token_ids
    return [*tokenizer.prompt_prefix, *token_ids]


def fit_window(context: list[int], continuation: list[int], max_tokens: int) -> ScoredWindow:
    """Returns the continuation with as much of the context's end as fits. Raises RequestError where
    not even one context token fits."""
    if len(continuation) + 1 > max_tokens:
        raise RequestError(
            "a continuation is longer than the model's window",
            seen=f"{len(continuation)} tokens + 1 of context, a window of {max_tokens}",
            remedy="Use score_rolling, which cuts a text into windows.",
        )
    num_dropped = max(0, len(context) + len(continuation) - max_tokens)
    return ScoredWindow(
        token_ids=context[num_dropped:] + continuation,
        num_scored=len(continuation),
        num_dropped_tokens=num_dropped,
    )


def rolling_windows(tokenizer: ScoringTokenizer, text: Text, max_tokens: int) -> list[ScoredWindow]:
    """Returns windows that score each token of the text once
    (lm_eval.utils.get_rolling_token_windows with a context_len of 1). The first begins with the
    prefix token. All are full: a last one with fewer tokens to score has a longer context."""
    token_ids = encode_text(tokenizer, text) if isinstance(text, str) else list(text)
    if not token_ids:
        return []
    num_scored = min(max_tokens - 1, len(token_ids))
    windows = [
        ScoredWindow(
            token_ids=[_prefix(tokenizer), *token_ids[:num_scored]],
            num_scored=num_scored,
        )
    ]
    for start in range(num_scored, len(token_ids), max_tokens - 1):
        end = min(start + max_tokens - 1, len(token_ids))
        windows.append(
            ScoredWindow(token_ids=token_ids[end - max_tokens : end], num_scored=end - start)
        )
    return windows


def _prefix(tokenizer: ScoringTokenizer) -> int:
    if tokenizer.prefix_token_id is None:
        raise RequestError(
            "a text's first token has nothing to follow: the tokenizer has no bos and no eos token",
            seen="an empty context",
            remedy="Give a context.",
        )
    return tokenizer.prefix_token_id
