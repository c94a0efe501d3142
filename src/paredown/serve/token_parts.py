"""TokenParts: what stands around the log-probability of a token in JSON. The same tokens are told
again and again, so each is written once."""

from collections.abc import Callable

from paredown.engine.detokenize import TokenDecoder
from paredown.engine.placed_tokens import own_text

Parts = tuple[str, str]
# 20 MB at the most.
MAX_KEPT = 2**16


class TokenParts(dict[int, Parts]):
    """The parts by token id, made where they are not there."""

    def __init__(self, tokenizer: TokenDecoder, write: Callable[[str | bytes], Parts]) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self.write = write

    def __missing__(self, token_id: int) -> Parts:
        parts = self.write(own_text(self._tokenizer, token_id))
        if len(self) < MAX_KEPT:
            self[token_id] = parts
        return parts
