"""How long a text may get, and which parts take a linear time."""

import pytest

from paredown.models.text.tokenizer_bounds import (
    growth_of,
    is_linear_decoder,
    is_linear_normalizer,
    is_linear_pre_tokenizer,
)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def replace(old: str, new: str, kind: str = "String") -> dict[str, object]:
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def sequence(*parts: object) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": list(parts)}


@pytest.mark.parametrize(
    ("part", "growth"),
    [
        (None, 1),
        ({"type": "NFKC"}, 1),
        (replace(" ", "▁"), 3),
        (replace("ab", "c"), 1),
        (replace("", "ab"), 4),
        (replace("a+", "bc", "Regex"), 2),
        ({"type": "Prepend", "prepend": "▁"}, 1),
        ({"type": "Prepend", "prepend": "x" * 40}, 40),
        (sequence(replace("a", "aa"), sequence(replace("a", "aaa")), replace("b", "")), 6),
        ({"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhYmMA"}, 1),
    ],
)
def test_growth(part: object, growth: float) -> None:
    assert growth_of(part) == growth


@pytest.mark.parametrize(
    ("part", "is_linear"),
    [
        (None, True),
        (sequence({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")), True),
        (sequence({"type": "NFKC"}, replace(" {2,}", "▁", "Regex")), True),
        (replace("(a+)+", "b", "Regex"), False),
        (replace("", "b"), False),
        (sequence(*[replace("a", "aa")] * 3), False),
        (sequence(*[{"type": "NFC"}] * 40), False),
        ({"type": "Unheard"}, False),
    ],
)
def test_normalizers(part: object, is_linear: bool) -> None:
    assert is_linear_normalizer(part) is is_linear


@pytest.mark.parametrize(
    ("part", "is_linear"),
    [
        (None, True),
        ({"type": "ByteLevel"}, True),
        ({"type": "Split", "pattern": {"Regex": GPT2}}, True),
        ({"type": "Split", "pattern": {"Regex": "(a+)+"}}, False),
        ({"type": "Split"}, False),
        ({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Unheard"}]}, False),
    ],
)
def test_pre_tokenizers(part: object, is_linear: bool) -> None:
    assert is_linear_pre_tokenizer(part) is is_linear


@pytest.mark.parametrize(
    ("part", "is_linear"),
    [
        (None, True),
        ({"type": "Sequence", "decoders": [replace("▁", " "), {"type": "Fuse"}]}, True),
        (replace("a", "b" * 9), False),
        (replace(r"\s+$", "", "Regex"), False),
    ],
)
def test_decoders(part: object, is_linear: bool) -> None:
    assert is_linear_decoder(part) is is_linear
