"""PackedPages: the token ids of full pages, as the prefix cache compares them."""

from array import array

from paredown.spec.kv import PAGE_SIZE

_PAGE_BYTES = PAGE_SIZE * array("i").itemsize


def packed(token_ids: list[int]) -> bytes:
    return array("i", token_ids).tobytes()


class PackedPages:
    """The pages in `tokens` from `start` on. Implements PageContents.

    A page's content is bytes: Python salts their hashes, so nobody can choose prompts whose pages
    collide. They are cut out on comparison, which most pages never see.
    """

    __slots__ = ("_start", "_tokens")

    def __init__(self, tokens: bytes, start: int = 0) -> None:
        self._tokens = tokens
        self._start = start

    def __getitem__(self, index: int, /) -> bytes:
        at = (self._start + index) * _PAGE_BYTES
        return self._tokens[at : at + _PAGE_BYTES]
