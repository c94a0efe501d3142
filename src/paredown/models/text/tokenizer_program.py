"""Runs a tokenizer as the program of a ConfinedProcess, if its patterns may take any time."""

import array
import json
import os
from collections.abc import Callable

import tokenizers

from paredown.models.text.marked_text import MarkedText

ENCODE, DECODE, DECODE_ALL, SURROUND, PAIR, MARKED = b"e", b"d", b"a", b"s", b"p", b"m"
# The array type of token ids, in both directions.
ID_TYPE = "I"


def make_tokenizer(setup: bytes) -> Callable[[bytes], bytes]:
    """Returns the tokenizer's handler. `setup` is a flag that splits special tokens in texts,
    followed by tokenizer.json."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    library = tokenizers.Tokenizer.from_buffer(setup[1:])
    library.encode_special_tokens = setup[:1] == b"1"
    library.no_truncation()
    library.no_padding()

    def answer(request: bytes) -> bytes:
        kind, rest = request[:1], request[1:]
        if kind == ENCODE:
            ids = library.encode(rest.decode(), add_special_tokens=False).ids
            return array.array(ID_TYPE, ids).tobytes()
        if kind == SURROUND:
            whole = library.encode(rest.decode(), add_special_tokens=True)
            return json.dumps([whole.ids, whole.special_tokens_mask]).encode()
        if kind == PAIR:
            first, second = json.loads(rest)
            whole = library.encode(first, second, add_special_tokens=True)
            return json.dumps([whole.ids, whole.type_ids, whole.sequence_ids]).encode()
        if kind == MARKED:
            text, letters = json.loads(rest)
            return array.array(ID_TYPE, MarkedText(library).encode(text, letters)).tobytes()
        ids = array.array(ID_TYPE, rest).tolist()
        decoded: str = library.decode(ids, skip_special_tokens=kind == DECODE)
        return decoded.encode()

    return answer
