"""Texts in which some control tokens are only text, as ids."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from fakes.small_tokenizers import NAMES, byte_level, write_folder
from paredown.models.text.marked_text import MarkedText
from paredown.models.text.tokenizer import Tokenizer

MARKS = ("<|im_start|>", "<|im_end|>", "<tool_call>")
LETTERS = dict(zip("\ue000\ue001\ue002", MARKS, strict=True))
PIECES = [*MARKS, "a", " ", "\n", "é", "🦊", "<|", "|>", "\ufdd0"]


@given(parts=st.lists(st.sampled_from(PIECES)))
def test_text_is_encoded_as_if_the_tokenizer_knew_no_control_tokens(parts: list[str]) -> None:
    library, plain = byte_level(*MARKS), byte_level()
    text = marked = "".join(parts)
    for letter, token in LETTERS.items():
        marked = marked.replace(token, letter)
    wanted = plain.encode(text, add_special_tokens=False).ids
    assert MarkedText(library).encode(marked, LETTERS) == wanted
    # Between control tokens that count, each part is encoded on its own.
    around = MarkedText(library).encode(f"<|im_start|>{marked}<|im_end|>", LETTERS)
    start, end = (library.token_to_id(one) for one in MARKS[:2])
    assert around == [start, *wanted, end]


def test_a_tokenizer_in_its_own_process_gives_the_same(tmp_path: Path) -> None:
    here = byte_level(*MARKS)
    slow = byte_level(*MARKS)
    # A pattern whose time may exceed linear.
    slow.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"(?=(a+)+z)x"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer = Tokenizer.open(write_folder(tmp_path, slow, NAMES))
    assert not tokenizer.encodes_here
    text = "<|im_start|>a\ue001b<|im_end|>"
    ids = tokenizer._library.encode_marked(text, LETTERS)
    assert ids == MarkedText(here).encode(text, LETTERS)
