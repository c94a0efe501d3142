r"""The rules by which llama.cpp cuts text into words before byte-level BPE, by the names that
`tokenizer.ggml.pre` has for them, and the patterns that tokenizer.json has for the same rule
(llama.cpp, src/llama-vocab.cpp).
"""

from collections.abc import Mapping
from dataclasses import dataclass

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_DIGIT = r"\p{N}"
_DIGITS = r"\p{N}+"
_UP_TO_THREE_DIGITS = r"\p{N}{1,3}"
# Counted from the right, so the first group of a number has one, two or three digits.
_THREES_FROM_THE_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
# The default pattern of ByteLevel.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGIT_PATTERN = _DIGIT
_LLAMA3_PATTERN = rf"{_ENDINGS}|{_LETTERS}|{_UP_TO_THREE_DIGITS}|{_REST}"
_QWEN2_PATTERN = rf"{_ENDINGS}|{_LETTERS}|{_DIGIT}|{_REST}"
_QWEN35_PATTERN = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|{_DIGIT}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
# The models in the package split numbers with the space before them.
_PAREDOWN_PATTERN = rf"'(?:[sdmt]|ll|ve|re)(?!\p{{L}})| ?\p{{L}}+| ?\p{{N}}{{1,3}}|{_REST}"


def _cased_words(upper: str, lower: str, endings: str, digits: str) -> str:
    """Returns a pattern for words that start anew at a capital letter (o200k, Tekken)."""
    start = r"[^\r\n\p{L}\p{N}]?"
    return (
        f"{start}{upper}*{lower}+{endings}|{start}{upper}+{lower}*{endings}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


# Letters by their ASCII case; non-ASCII letters match both.
_UPPER, _LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_MARKED_UPPER, _MARKED_LOWER = r"(?:(?=[\p{L}\p{M}])[^a-z])", r"(?:(?=[\p{L}\p{M}])[^A-Z])"
_CASED, _UNCASED = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_FULL_UPPER, _FULL_LOWER = f"[{_CASED}]", f"[{_UNCASED}]"
_GPT4O_PATTERN = _cased_words(_UPPER, _LOWER, f"{_ENDINGS}?", _UP_TO_THREE_DIGITS)
_EXAONE_PATTERN = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|{_DIGIT}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_KIMI_PATTERN = (
    rf"\p{{Han}}+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^\p{{Han}}]]+{_ENDINGS}?"
    rf"|{_UP_TO_THREE_DIGITS}|{_REST}"
)
_PUNCTUATED_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
)
# Linear although no single branch shows it: where one branch reads a word and fails, another takes
# that word (models/text/linear_pattern.py).
LINEAR_WORDS = frozenset(
    {
        _EXAONE_PATTERN,
        *(
            _cased_words(upper, lower, endings, digits)
            for upper, lower in (
                (_UPPER, _LOWER),
                (_MARKED_UPPER, _MARKED_LOWER),
                (_FULL_UPPER, _FULL_LOWER),
            )
            for endings in ("", f"{_ENDINGS}?")
            for digits in (_DIGIT, _UP_TO_THREE_DIGITS)
        ),
    }
)
_CHINESE_AND_KANA = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
_CHINESE_AND_KOREAN = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
_ASIAN = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}"
    r"\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E00}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}"
    r"\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
)
_DEEPSEEK3 = (_UP_TO_THREE_DIGITS, _CHINESE_AND_KANA, rf"{_PUNCTUATED_WORDS}[\r\n]*|{_SPACES}")
# Letters that have a case, as DeepSeek lists them.
_CASED_LETTERS = (
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}"
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}"
    r"\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}"
    r"\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}"
    r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}"
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}"
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}"
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}"
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}"
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}"
    r"\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}"
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}"
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}"
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}"
    r"\x{1E900}-\x{1E943}"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
    r"\s+$",
    _CHINESE_AND_KOREAN,
    _DIGITS,
)
_SENTENCE_WORDS = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+"
_YOUTU = (
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+"
    r"|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}"
    r"\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|" + _CHINESE_AND_KANA,
    _cased_words(_FULL_UPPER, _FULL_LOWER, f"{_ENDINGS}?", _DIGIT),
)
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"(?:IMGIMG)(?:[A-I]{1,4})Z",
    r"[\t\n]|    |  ",
    _DIGIT,
    r"[\p{P}!-/:-@\[-`{-~]",
    GPT2_PATTERN,
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, _DIGITS, r"[0-9][0-9][0-9]")


@dataclass(frozen=True, kw_only=True)
class WordRule:
    """`patterns`        cut one after the other; each cuts what those before it left whole
    `ignores_merges`  a word that is a token is that token, whatever the merges would make
    `adds_bos`        a text begins with the bos token where the file does not say
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False


@dataclass(frozen=True, kw_only=True)
class LlamaCppRule:
    """The words of a tokenizer in llama.cpp's terms. `difference` says where they are not the
    same."""

    pre: str
    difference: str | None = None


_GPT2 = WordRule(patterns=(GPT2_PATTERN,))
_LLAMA3 = WordRule(patterns=(_LLAMA3_PATTERN,), ignores_merges=True, adds_bos=True)
_LLAMA3_MERGED = WordRule(patterns=(_LLAMA3_PATTERN,))
_QWEN2 = WordRule(patterns=(_QWEN2_PATTERN,))
_STARCODER = WordRule(patterns=(_DIGIT, GPT2_PATTERN))
_GPT4O = WordRule(patterns=(_GPT4O_PATTERN,))
_BLOOM = WordRule(patterns=(_SENTENCE_WORDS,))
_BAILING = WordRule(
    patterns=(
        rf"'(?i:[sdmt]|ll|ve|re)|{_LETTERS}|{_DIGIT}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)
_TINY_AYA = WordRule(
    patterns=(
        _THREES_FROM_THE_RIGHT,
        _cased_words(_FULL_UPPER, _FULL_LOWER, f"{_ENDINGS}?", _UP_TO_THREE_DIGITS),
    )
)
MISSING = "default"
WORD_RULES: Mapping[str, WordRule] = {
    MISSING: WordRule(patterns=_DEFAULT),
    "minicpm5": WordRule(
        patterns=(_UP_TO_THREE_DIGITS, rf"{_ENDINGS}|{_LETTERS}|{_DIGITS}|{_REST}"),
        ignores_merges=True,
    ),
    **dict.fromkeys(
        (
            "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
            "lfm2", "jina-v5-nano",
        ),
        _LLAMA3,
    ),
    "deepseek-llm": WordRule(patterns=_DEEPSEEK_LLM),
    "deepseek-coder": WordRule(
        patterns=(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE_AND_KOREAN, _DIGIT)
    ),
    **dict.fromkeys(
        ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), WordRule(patterns=_DEEPSEEK3)
    ),
    "spark2_5": WordRule(
        patterns=(
            *_DEEPSEEK3[:2],
            rf"{_PUNCTUATED_WORDS}|[\r\n]|\s+(?!\S)|\s+",
            _DIGIT,
        )
    ),
    "youtu": WordRule(patterns=_YOUTU, ignores_merges=True),
    "falcon": WordRule(
        patterns=(r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, r"[0-9][0-9][0-9]")
    ),
    **dict.fromkeys(
        (
            "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de",
            "a.x-4.0", "mellum", "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe",
            "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
        ),
        _GPT2,
    ),
    "jais-2": WordRule(
        patterns=(
            rf"{_ENDINGS}|{_LETTERS}|{_UP_TO_THREE_DIGITS}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
            r"|\s*[\r\n]+"
            + "".join(rf"|\s{{{size}}}(?!\S)" for size in (512, 256, 128, 64, 32, 16, 8, 4))
            + r"|\s{1,2}(?!\S)|\s{1}",
        )
    ),
    **dict.fromkeys(
        (
            "starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b",
            "mellum2",
        ),
        _STARCODER,
    ),
    **dict.fromkeys(
        (
            "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open",
            "megrez", "grok-2",
        ),
        _QWEN2,
    ),
    "qwen35": WordRule(patterns=(_QWEN35_PATTERN,)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), _LLAMA3_MERGED),
    **dict.fromkeys(
        ("glm4", "glm5"), WordRule(patterns=(_LLAMA3_PATTERN,), ignores_merges=True)
    ),
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), _BLOOM),
    "viking": WordRule(patterns=(_SENTENCE_WORDS, _DIGIT)),
    "tekken": WordRule(
        patterns=(_cased_words(_UPPER, _LOWER, "", _DIGIT),), ignores_merges=True, adds_bos=True
    ),
    "exaone-moe": WordRule(patterns=(_EXAONE_PATTERN,)),
    "chameleon": WordRule(patterns=_CHAMELEON, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O),
    "granite-embed-multi-97m": WordRule(
        patterns=(
            _cased_words(_MARKED_UPPER, _MARKED_LOWER, f"{_ENDINGS}?", _UP_TO_THREE_DIGITS),
        ),
        ignores_merges=True,
    ),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _TINY_AYA),
    "superbpe": WordRule(patterns=(_DIGITS, _THREES_FROM_THE_RIGHT.replace(_DIGIT, "[0-9]"))),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
    "seed-coder": WordRule(
        patterns=(
            rf"{_ENDINGS}|{_LETTERS}|{_DIGIT}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",
        )
    ),
    "kimi-k2": WordRule(patterns=(_KIMI_PATTERN,)),
    "ufakzeka": WordRule(patterns=(rf"{_LETTERS}|{_DIGIT}|{_REST}",)),
    "afmoe": WordRule(
        patterns=(
            _THREES_FROM_THE_RIGHT,
            _ASIAN,
            rf"{_PUNCTUATED_WORDS}[\r\n]*|{_SPACES}",
        )
    ),
    "laguna": WordRule(patterns=(r"[^\n]+|[\n]+", _QWEN2_PATTERN)),
}  # fmt: skip
# Keys are (patterns, whether merges are ignored).
LLAMA_CPP_RULES: Mapping[tuple[tuple[str, ...], bool], LlamaCppRule] = {
    ((GPT2_PATTERN,), False): LlamaCppRule(pre="gpt-2"),
    ((_DIGIT, GPT2_PATTERN), False): LlamaCppRule(pre="smollm"),
    ((_LLAMA3_PATTERN,), True): LlamaCppRule(pre="llama-bpe"),
    ((_LLAMA3_PATTERN,), False): LlamaCppRule(pre="dbrx"),
    ((_QWEN2_PATTERN,), False): LlamaCppRule(pre="qwen2"),
    ((_PAREDOWN_PATTERN,), False): LlamaCppRule(
        pre="gpt-4o",
        difference="llama.cpp takes the space off a number that follows it, so such numbers "
        "become other tokens there",
    ),
}
