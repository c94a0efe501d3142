"""TokenParts: caches the JSON around a token's log-probability, since the same tokens recur."""

from collections.abc import Callable

from paredown.engine.detokenize import TokenDecoder
from paredown.engine.placed_tokens import own_text

Parts = tuple[str, str]
# At most 20 MB.
MAX_KEPT = 2**16


class TokenParts(dict[int, Parts]):
    """The parts by token id, created on first use."""

    def __init__(self, tokenizer: TokenDecoder, write: Callable[[str | bytes], Parts]) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self.write = write

    def __missing__(self, token_id: int) -> Parts:
        parts = self.write(own_text(self._tokenizer, token_id))
        if len(self) < MAX_KEPT:
            self[token_id] = parts
        return parts
