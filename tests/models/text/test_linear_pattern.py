"""Which patterns of tokenizers are known to take a linear time."""

import time

import pytest
from tokenizers import Regex, pre_tokenizers

from paredown.models.gguf.words import LINEAR_WORDS, WORD_RULES
from paredown.models.text.linear_pattern import is_linear

PATTERNS = sorted({*LINEAR_WORDS, *(one for rule in WORD_RULES.values() for one in rule.patterns)})
# One that takes the square, `\s+$`, takes 14 s of so many characters.
NUM_CHARS = 20_000
SOON_S = 10.0


@pytest.mark.parametrize(
    "pattern",
    [
        "[一-龥぀-ゟ゠-ヿ]+",
        " {2,}",
        r"\s+",
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
        r"[\p{L}&&[^\p{Han}]]+",
    ],
)
def test_patterns_of_the_field_are_linear(pattern: str) -> None:
    assert is_linear(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "", "(a+)+", "(a|a)*b", "a+b", r"\s+$", "a?a?a?a?a", "a{2}{3}", "a+?b", "a**", r"(a)\1",
        r"\R+x", r"\s*[\r\n]+|a", r"\s+(?!\S)", "[]a]+b]", "[a", "a{,5}b", "a{17}", "a+[b]",
        "(?=a*b)a", "(?<=a)b", "a" * 20_000, r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", "a{2}+b",
        r"\x{41}+\x{42}", "(?x)a", "^a+$", "(?i:'s|'t)+",
    ],
)  # fmt: skip
def test_others_are_not_known_to_be(pattern: str) -> None:
    assert not is_linear(pattern)


@pytest.mark.parametrize("pattern", [*filter(is_linear, PATTERNS)], ids=repr)
def test_what_is_called_linear_does_not_take_the_square(pattern: str) -> None:
    splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
    start_s = time.monotonic()
    for unit in (" ", "a", "A", "1", " \t", "aA", "\u0301", "!"):
        for tail in ("x", "!"):
            splitter.pre_tokenize_str(unit * (NUM_CHARS // len(unit)) + tail)
    assert time.monotonic() - start_s < SOON_S
