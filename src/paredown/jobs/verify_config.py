"""VerifyConfig: the text on which a new checkpoint is measured."""

from dataclasses import dataclass
from pathlib import Path

from paredown.evaluate.texts.continued_text import choose_continued_text
from paredown.evaluate.texts.encoder_texts import EncoderTexts, choose_encoder_texts
from paredown.evaluate.texts.sampling_executor import load_sampling_executor
from paredown.evaluate.texts.text import EvalText, choose_text
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer

DEFAULT_TOKENS = 4096
# The value of `not_verified` if the caller wanted no verification.
NOT_WANTED = "--no-verify"


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """The text that the new checkpoint and its original both predict (docs/guide/verification.md),
    or of which both encoders make vectors. In encoder-decoders the encoders read one part of each
    stretch, and the decoders predict the rest (evaluate/texts/continued_text.py).

    `text`        a UTF-8 file; None takes the classic books under $PAREDOWN_DATA, else a text that
                  the original samples; an encoder reads random tokens then
    `num_tokens`  how many tokens of it are predicted or read
    """

    text: Path | None = None
    num_tokens: int = DEFAULT_TOKENS

    def texts_for(
        self, original: Checkpoint, num_threads: int | None, max_positions: int | None = None
    ) -> EvalText | EncoderTexts:
        """Returns what shows the loss of the original's kind. Raises what `choose_text` raises."""
        if original.spec.generates:
            return self.choose_text(original, num_threads, max_positions)
        context = original.spec.max_positions
        return choose_encoder_texts(
            self.text,
            Tokenizer.open(original.path),
            self.num_tokens,
            vocab_size=original.spec.vocab_size,
            max_positions=context if max_positions is None else min(context, max_positions),
        )

    def choose_text(
        self, original: Checkpoint, num_threads: int | None, max_positions: int | None = None
    ) -> EvalText:
        """Reads the text, or has the original sample it, in windows that `max_positions` hold too.
        Raises ConfigError for fewer than one token and for a file that is not text, CheckpointError
        for one that cannot be read."""
        context, tokenizer = original.spec.max_positions, Tokenizer.open(original.path)
        if original.spec.encoder is not None:
            return choose_continued_text(
                self.text,
                tokenizer,
                self.num_tokens,
                lambda: load_sampling_executor(original, num_threads),
                original.spec,
            )
        return choose_text(
            self.text,
            tokenizer,
            self.num_tokens,
            lambda: load_sampling_executor(original, num_threads),
            context if max_positions is None else min(context, max_positions),
        )
