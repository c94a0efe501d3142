"""A GGUF file's WordPiece tokenizer (`tokenizer.ggml.model` bert) as the parts of tokenizer.json.

A token that begins a word stands there behind SPACE, one that goes on stands as it is; the library
has it the other way round, with a mark before those that go on.
"""

from collections.abc import Sequence

from paredown.models.families.fields import Fields

# SentencePiece's space.
SPACE = "▁"
_GOES_ON = "##"
_LOWERCASE, _STRIP_ACCENTS = (
    f"tokenizer.ggml.normalizer.{name}" for name in ("lowercase", "strip_accents")
)
# No word is too long: the others would be unknown as a whole.
_MAX_WORD_CHARACTERS = 1 << 20


def word_piece(tokens: Sequence[str], unknown: str, fields: Fields) -> dict[str, object]:
    """`unknown` is the token of a word that cannot be put together."""
    vocabulary = {_library_token(token): place for place, token in enumerate(tokens)}
    # Of whatever form it is, no word has this token among its pieces.
    vocabulary[unknown] = vocabulary.pop(_library_token(unknown))
    is_lower = fields.flag(_LOWERCASE, True)
    strips = fields.flag(_STRIP_ACCENTS, is_lower)
    normalizers: list[dict[str, object]] = [
        {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": strips,
            "lowercase": is_lower,
        }
    ]
    if strips:
        # llama.cpp strips all marks, those with a width of their own too, and keeps the first
        # letter of what it takes apart: of the syllables of Hangul that is their lead.
        stripped = {"Regex": r"[\p{M}\x{1161}-\x{1175}\x{11A8}-\x{11C2}]"}
        normalizers.append({"type": "Replace", "pattern": stripped, "content": ""})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": _GOES_ON, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": _GOES_ON,
            "max_input_chars_per_word": _MAX_WORD_CHARACTERS,
            "vocab": vocabulary,
        },
    }


def _library_token(token: str) -> str:
    if token.startswith(SPACE):
        return token[len(SPACE) :]
    if token.startswith("[") and token.endswith("]"):
        return token
    return f"{_GOES_ON}{token}"
