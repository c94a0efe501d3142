"""Converts a GGUF file's WordPiece tokenizer (`tokenizer.ggml.model` bert) to parts of
tokenizer.json.

In the file, SPACE marks tokens that begin a word; tokens that continue one are plain. The library
does the opposite and marks those that continue.
"""

from collections.abc import Mapping, Sequence

from paredown.models.families.fields import Fields

# SentencePiece's space.
SPACE = "▁"
_GOES_ON = "##"
_LOWERCASE, _STRIP_ACCENTS = (
    f"tokenizer.ggml.normalizer.{name}" for name in ("lowercase", "strip_accents")
)
# Large enough for any word: longer ones would become unknown as a whole.
_MAX_WORD_CHARACTERS = 1 << 20


def word_piece(
    tokens: Sequence[str], unknown: str, ends: tuple[int, int], fields: Fields
) -> dict[str, object]:
    """Returns the parts. `unknown` is the token for words that cannot be put together, and `ends`
    are the tokens before a text and behind it."""
    vocabulary = {_library_token(token): place for place, token in enumerate(tokens)}
    # Whatever its form, this token is never a piece of a word.
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
        # llama.cpp strips all marks, also those with a width of their own. Of a decomposed letter
        # it keeps only the first part; for a Hangul syllable that is its lead.
        stripped = {"Regex": r"[\p{M}\x{1161}-\x{1175}\x{11A8}-\x{11C2}]"}
        normalizers.append({"type": "Replace", "pattern": stripped, "content": ""})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _around(tokens, ends),
        "decoder": {"type": "WordPiece", "prefix": _GOES_ON, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": _GOES_ON,
            "max_input_chars_per_word": _MAX_WORD_CHARACTERS,
            "vocab": vocabulary,
        },
    }


def _around(tokens: Sequence[str], ends: tuple[int, int]) -> dict[str, object]:
    """Returns the post-processor of BERT: [CLS] text [SEP], and for a pair [CLS] first [SEP] second
    [SEP], whose second part has type 1."""
    first, last = ({"id": tokens[one], "ids": [one], "tokens": [tokens[one]]} for one in ends)

    def token(one: Mapping[str, object], kind: int) -> dict[str, object]:
        return {"SpecialToken": {"id": one["id"], "type_id": kind}}

    def text(name: str, kind: int) -> dict[str, object]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [token(first, 0), text("A", 0), token(last, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), token(last, 1)],
        "special_tokens": {str(one["id"]): one for one in (first, last)},
    }


def _library_token(token: str) -> str:
    if token.startswith(SPACE):
        return token[len(SPACE) :]
    if token.startswith("[") and token.endswith("]"):
        return token
    return f"{_GOES_ON}{token}"
