"""Texts for encoder-decoders: stretches of a text, each in two parts.

The encoder reads the first part, as a whole text with its special tokens. The decoder predicts how
it goes on, from its start token. Without a file the encoder reads random tokens, and the decoder
what it samples for them itself.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from paredown.engine.decoder_start import StartTokenizer, decoder_start
from paredown.errors import ConfigError
from paredown.evaluate.texts.sampled_answers import sample_answers
from paredown.evaluate.texts.text import (
    DATA_TEXT,
    EvalText,
    EvalWindow,
    TextTokenizer,
    data_file,
    read_text,
)
from paredown.executors.protocol import Executor
from paredown.models.text.whole_text import SurroundingTokenizer, WholeText
from paredown.spec.model import ModelSpec

# The most tokens of each part: what such models were trained on is about as long.
PART_TOKENS = 256
RANDOM = "answers that the model samples itself to random tokens"
_MAX_BYTES_PER_TOKEN = 16


class ContinuedTokenizer(SurroundingTokenizer, StartTokenizer, TextTokenizer, Protocol):
    """The part of a tokenizer that cuts a text for both sides."""


@dataclass(frozen=True, kw_only=True)
class Cutter:
    """Cuts stretches in two. `whole` is the encoder's part, and the decoder predicts at most
    `num_answer_tokens` after it, from `start_token_id` on."""

    whole: WholeText
    num_answer_tokens: int
    start_token_id: int

    @classmethod
    def of(
        cls,
        tokenizer: ContinuedTokenizer,
        spec: ModelSpec,
        num_prompt_tokens: int = PART_TOKENS,
        num_answer_tokens: int = PART_TOKENS,
    ) -> "Cutter":
        """Returns one for texts that both stacks of the model can hold. Raises ConfigError where
        special tokens leave no room, and CheckpointError for an unknown start token."""
        assert spec.encoder is not None
        most = min(num_prompt_tokens, spec.encoder.max_positions)
        return cls(
            whole=WholeText(tokenizer=tokenizer, max_tokens=most),
            num_answer_tokens=min(num_answer_tokens, spec.max_positions),
            start_token_id=decoder_start(tokenizer, spec.vocab_size),
        )

    @property
    def num_text_tokens(self) -> int:
        """The tokens of a stretch, without special ones."""
        return self.whole.room + self.num_answer_tokens

    def window(self, prompt: Sequence[int], answer: Sequence[int]) -> EvalWindow:
        """Returns a stretch as both sides read it."""
        return EvalWindow(
            encoder_ids=self.whole.put(prompt),
            inputs=[self.start_token_id, *answer[:-1]],
            targets=[*answer],
        )

    def windows(self, ids: Sequence[int], num_tokens: int) -> Iterator[EvalWindow]:
        """Yields stretches of a text that predict `num_tokens` tokens, or as many as there are. A
        stretch that is too short for both parts is halved."""
        start = 0
        while num_tokens > 0 and start + 1 < len(ids):
            middle = start + self.whole.room
            if middle >= len(ids):
                middle = start + (len(ids) - start) // 2
            end = min(middle + min(self.num_answer_tokens, num_tokens), len(ids))
            yield self.window(ids[start:middle], ids[middle:end])
            num_tokens -= end - middle
            start = end

    def random_prompts(self, num_prompts: int, vocab_size: int) -> list[list[int]]:
        """Returns texts of random tokens for the encoder; the same numbers give the same ones."""
        rng = np.random.default_rng(0)
        return [
            self.whole.put(rng.integers(0, vocab_size, self.whole.room).tolist())
            for _ in range(num_prompts)
        ]


def choose_continued_text(
    path: Path | None,
    tokenizer: ContinuedTokenizer,
    num_tokens: int,
    reference: Callable[[], Executor],
    spec: ModelSpec,
) -> EvalText:
    """Returns stretches that predict `num_tokens` tokens of the beginning of `path`, else of the
    classic books in $PAREDOWN_DATA, else of what the reference model samples, which is loaded only
    then. Raises ConfigError for fewer than one token and for a file without a text, and
    CheckpointError for one that cannot be read."""
    if num_tokens < 1:
        raise ConfigError(
            "there is nothing to measure on: no token of the text",
            seen=num_tokens,
            remedy="Give --tokens of at least one.",
        )
    cutter = Cutter.of(tokenizer, spec)
    path = path or data_file(DATA_TEXT)
    if path is None:
        windows = _sampled(cutter, reference(), num_tokens)
        return _eval_text(windows, tokenizer, RANDOM)
    num_stretches = -(-num_tokens // cutter.num_answer_tokens)
    num_text_tokens = num_stretches * cutter.num_text_tokens
    text = read_text(path, num_text_tokens * _MAX_BYTES_PER_TOKEN)
    windows = list(cutter.windows(tokenizer.encode(text)[:num_text_tokens], num_tokens))
    if not windows:
        raise ConfigError(
            "there is no text to measure quality on",
            seen=f"fewer than two tokens of {path.name}",
            remedy="Give a longer text (--text).",
        )
    return _eval_text(windows, tokenizer, path.name)


def _sampled(cutter: Cutter, executor: Executor, num_tokens: int) -> list[EvalWindow]:
    length = min(cutter.num_answer_tokens, num_tokens)
    prompts = cutter.random_prompts(-(-num_tokens // length), executor.spec.vocab_size)
    answers = sample_answers(executor, prompts, cutter.start_token_id, length)
    windows = list[EvalWindow]()
    for prompt, answer in zip(prompts, answers, strict=True):
        kept = answer[: num_tokens - length * len(windows)]
        inputs = [cutter.start_token_id, *kept[:-1]]
        windows.append(EvalWindow(encoder_ids=prompt, inputs=inputs, targets=kept))
    return windows


def _eval_text(windows: list[EvalWindow], tokenizer: TextTokenizer, source: str) -> EvalText:
    num_tokens = sum(len(one.targets) for one in windows)
    num_bytes = max(1, sum(len(tokenizer.decode(one.targets).encode()) for one in windows))
    most = max(len(one.targets) for one in windows)
    read = max(len(one.encoder_ids) for one in windows)
    return EvalText(
        windows=windows,
        num_tokens=num_tokens,
        num_bytes=num_bytes,
        window_tokens=most,
        source=source,
        protocol=f"{num_tokens:,} tokens ({num_bytes:,} bytes) of {source}, in stretches of up "
        f"to {most}: the decoder predicts each, and its encoder reads up to {read} tokens before "
        "it",
    )
