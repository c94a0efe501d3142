"""A model that says given pieces of text, one token each, whatever it is asked."""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fakes.toy_executor import EOS, ToyExecutor, ToyTokenizer, toy_spec
from paredown.executors.protocol import SequenceSlice

# Below are ToyTokenizer's bytes.
FIRST = 257
VOCAB_SIZE = 2048
MAX_POSITIONS = 4096
SPEC = toy_spec(vocab_size=VOCAB_SIZE, max_positions=MAX_POSITIONS)


class ScriptedTokenizer(ToyTokenizer):
    """Tokens from FIRST on are the pieces of the script."""

    def __init__(self) -> None:
        super().__init__(VOCAB_SIZE)
        self.pieces: list[bytes] = []
        # What was rendered last.
        self.messages: list[dict[str, object]] = []
        self.tools: list[dict[str, object]] | None = None
        self.template_values: Mapping[str, object] | None = None

    def say(self, *pieces: str | bytes) -> None:
        """Sets the script."""
        assert len(pieces) < VOCAB_SIZE - FIRST
        self.pieces = [one.encode() if isinstance(one, str) else one for one in pieces]

    def render_chat(
        self,
        messages: list[dict[str, object]],
        tools: list[dict[str, object]] | None = None,
        *,
        template_values: Mapping[str, object] | None = None,
    ) -> str:
        self.messages, self.tools, self.template_values = messages, tools, template_values
        shown = json.dumps(tools) if tools else ""
        return shown + super().render_chat(messages)

    def _bytes(self, token_id: int) -> bytes:
        if token_id < FIRST:
            return super()._bytes(token_id)
        number = token_id - FIRST
        return self.pieces[number] if number < len(self.pieces) else b""


class ScriptedExecutor(ToyExecutor):
    """After the prompt comes the first piece, after each piece the next, then the end."""

    def __init__(self, tokenizer: ScriptedTokenizer, num_pages: int) -> None:
        super().__init__(spec=SPEC, num_pages=num_pages)
        self._tokenizer = tokenizer

    def _run(self, one: SequenceSlice) -> list[npt.NDArray[np.float32]]:
        return [self._row(token_id) for token_id in one.token_ids[-one.num_logits :]] * bool(
            one.num_logits
        )

    def _row(self, token_id: int) -> npt.NDArray[np.float32]:
        following = token_id + 1 if token_id >= FIRST else FIRST
        is_over = following - FIRST >= len(self._tokenizer.pieces)
        row = np.full(VOCAB_SIZE, -40.0, np.float32)
        row[EOS if is_over else following] = 9.0
        return row


def cuts(text: str, marker: str) -> list[Sequence[str | bytes]]:
    """Returns the text as one piece, as two that are cut inside of `marker`, and as its bytes."""
    middle = text.index(marker) + len(marker) // 2
    return [[text], [text[:middle], text[middle:]], [bytes([one]) for one in text.encode()]]


def pieces(text: str, borders: Sequence[int]) -> list[bytes]:
    """Returns the bytes of a text, cut at these places."""
    data = text.encode()
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in borders)})
    return [data[i:j] for i, j in pairwise(places)]
