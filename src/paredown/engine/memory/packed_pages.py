"""PackedPages, AnsweredPages: the token ids of full pages, as the prefix cache compares them."""

from array import array

from paredown.spec.kv import PAGE_SIZE

_PAGE_BYTES = PAGE_SIZE * array("i").itemsize


def packed(token_ids: list[int]) -> bytes:
    return array("i", token_ids).tobytes()


class PackedPages:
    """Those from `start` on of the pages in `tokens`. Implements PageContents.

    What a page holds are bytes: Python's hashes of those are salted, so nobody can choose prompts
    whose pages collide. They are cut out when they are compared, which most never are.
    """

    __slots__ = ("_start", "_tokens")

    def __init__(self, tokens: bytes, start: int = 0) -> None:
        self._tokens = tokens
        self._start = start

    def __getitem__(self, index: int, /) -> bytes:
        at = (self._start + index) * _PAGE_BYTES
        return self._tokens[at : at + _PAGE_BYTES]


class AnsweredPages:
    """As PackedPages, of a packed prompt and the answer that comes after it in `token_ids`, which
    may grow. A page of the answer is packed when it is compared: most never are."""

    __slots__ = ("_prompt", "_start", "_token_ids")

    def __init__(self, prompt: bytes, token_ids: list[int], start: int) -> None:
        self._prompt = prompt
        self._token_ids = token_ids
        self._start = start

    def __getitem__(self, index: int, /) -> bytes:
        page = self._start + index
        if (page + 1) * _PAGE_BYTES <= len(self._prompt):
            return self._prompt[page * _PAGE_BYTES : (page + 1) * _PAGE_BYTES]
        return packed(self._token_ids[page * PAGE_SIZE : (page + 1) * PAGE_SIZE])
