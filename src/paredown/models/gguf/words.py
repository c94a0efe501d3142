r"""The rules by which llama.cpp cuts text into words before byte-level BPE, by the names that
`tokenizer.ggml.pre` has for them, and the patterns that tokenizer.json has for the same rule
(llama.cpp, src/llama-vocab.cpp).
"""

from collections.abc import Mapping
from dataclasses import dataclass

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# What ByteLevel does by itself.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_PATTERN = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2_PATTERN = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}|{_REST}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT4O_PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Of the models that come with the package: numbers with the space before them.
_PAREDOWN_PATTERN = rf"'(?:[sdmt]|ll|ve|re)(?!\p{{L}})| ?\p{{L}}+| ?\p{{N}}{{1,3}}|{_REST}"


@dataclass(frozen=True, kw_only=True)
class WordRule:
    """`ignores_merges`: a word that is a token is that token, whatever the merges would make."""

    pattern: str
    ignores_merges: bool = False


@dataclass(frozen=True, kw_only=True)
class LlamaCppRule:
    """What llama.cpp is told of a tokenizer; `difference` where its words are not the same."""

    pre: str
    difference: str | None = None


WORD_RULES: Mapping[str, WordRule] = {
    "gpt-2": WordRule(pattern=GPT2_PATTERN),
    "llama-bpe": WordRule(pattern=_LLAMA3_PATTERN, ignores_merges=True),
    "dbrx": WordRule(pattern=_LLAMA3_PATTERN),
    "qwen2": WordRule(pattern=_QWEN2_PATTERN),
    "deepseek-r1-qwen": WordRule(pattern=_QWEN2_PATTERN),
    "gpt-4o": WordRule(pattern=_GPT4O_PATTERN),
}
# By (pattern, whether merges are ignored).
LLAMA_CPP_RULES: Mapping[tuple[str, bool], LlamaCppRule] = {
    (GPT2_PATTERN, False): LlamaCppRule(pre="gpt-2"),
    (_LLAMA3_PATTERN, True): LlamaCppRule(pre="llama-bpe"),
    (_LLAMA3_PATTERN, False): LlamaCppRule(pre="dbrx"),
    (_QWEN2_PATTERN, False): LlamaCppRule(pre="qwen2"),
    (_PAREDOWN_PATTERN, False): LlamaCppRule(
        pre="gpt-4o",
        difference="llama.cpp takes the space off a number that follows it, so such numbers "
        "become other tokens there",
    ),
}
