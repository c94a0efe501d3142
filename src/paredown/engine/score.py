"""Score: how likely a text is, as lm-evaluation-harness counts it (Gao et al., 2024, zenodo
12608602; its lm_eval/api/model.py and utils.py).

Context and continuation lose their border when they become tokens: the whole is encoded, and the
continuation's tokens are those after as many as the context alone has. Spaces at the end of the
context count as the continuation's. An empty context is the tokenizer's bos token, or where it has
none its eos token.
A window is at most as long as the context of the model, with the last token that is scored.
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
    """What scoring needs of a tokenizer."""

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
    """The score of a continuation. Of each of its tokens, one after the other: the natural
    log-probability of each under the raw logits, and whether it is the likeliest one there.
    `num_dropped_tokens` is how many tokens the context lost at its start for want of room."""

    token_ids: list[int]
    logprobs: list[float]
    are_greedy: list[bool]
    num_dropped_tokens: int = 0

    @property
    def logprob(self) -> float:
        """The log-probability of the whole continuation: the sum."""
        return math.fsum(self.logprobs)

    @property
    def is_greedy(self) -> bool:
        """Whether greedy decoding would have written the continuation."""
        return all(self.are_greedy)

    @classmethod
    def joined(cls, parts: Sequence["Score"]) -> "Score":
        """Joins the scores of continuations that follow each other."""
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
        """`logprobs` are those of every token but the first."""
        scored = logprobs[-self.num_scored :]
        assert len(logprobs) == len(self.token_ids) - 1
        return Score(
            token_ids=[one.chosen.token_id for one in scored],
            logprobs=[one.chosen.logprob for one in scored],
            are_greedy=[one.chosen.token_id == one.top[0].token_id for one in scored],
            num_dropped_tokens=self.num_dropped_tokens,
        )


def scoring_params(window: ScoredWindow) -> SamplingParams:
    """What makes the engine score a window when all its tokens but the last are the prompt: the
    last one is drawn, and may be no other."""
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
    """The tokens of both, neither of them none. Two texts are encoded together; where one of the
    two is token ids already, the other is encoded alone. Raises RequestError."""
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
    """Encodes a text as a prompt is, but one that begins with the bos token gets no second one, and
    none has anything behind it: what continues it is scored there."""
    token_ids = tokenizer.encode(text)
    if token_ids[:1] == [tokenizer.bos_token_id]:
        return token_ids
    return [*tokenizer.prompt_prefix, *token_ids]


def fit_window(context: list[int], continuation: list[int], max_tokens: int) -> ScoredWindow:
    """The continuation and as much of the context's end as there is room for. Raises RequestError
    where a token of the context would not fit."""
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
    """Windows that score each token of the text once (lm_eval.utils.get_rolling_token_windows with
    a context_len of 1). The first follows the prefix token; all are full, and where the last has
    fewer tokens left to score they have the longer context."""
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
