"""Converts a GGUF file's WordPiece tokenizer (`tokenizer.ggml.model` bert) to parts of
tokenizer.json, and back.

In the file, SPACE marks tokens that begin a word; tokens that continue one are plain. The library
does the opposite and marks those that continue.
"""

from collections.abc import Mapping, Sequence

from paredown.models.families.fields import Fields

# SentencePiece's space.
SPACE = "▁"
_GOES_ON = "##"
_TOKENS = "tokenizer.ggml.tokens"
_LOWERCASE, _STRIP_ACCENTS = (
    f"tokenizer.ggml.normalizer.{name}" for name in ("lowercase", "strip_accents")
)
# Large enough for any word: longer ones would become unknown as a whole.
_MAX_WORD_CHARACTERS = 1 << 20


def word_piece(
    tokens: Sequence[str], unknown: str, ends: Sequence[int], fields: Fields
) -> dict[str, object]:
    """Returns the parts. `unknown` is the token for words that cannot be put together, and `ends`
    are the tokens before a text and behind it; a file that names none, or one, puts none there."""
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
        "post_processor": _around(tokens, ends) if len(ends) == 2 else None,
        "decoder": {"type": "WordPiece", "prefix": _GOES_ON, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": _GOES_ON,
            "max_input_chars_per_word": _MAX_WORD_CHARACTERS,
            "vocab": vocabulary,
        },
    }


def word_piece_metadata(
    library: Mapping[str, object], model: Mapping[str, object], tokens: Sequence[str]
) -> dict[str, str | bool | list[str]] | None:
    """Returns the tokens and the normalizer's flags of a tokenizer.json, by their keys; None for a
    tokenizer that is not like BERT's. `tokens` are in the order of their ids."""
    normalizer, added = library.get("normalizer"), library.get("added_tokens")
    is_berts = (
        isinstance(normalizer, Mapping)
        and normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text") is True
        and normalizer.get("handle_chinese_chars") is True
        and library.get("pre_tokenizer") == {"type": "BertPreTokenizer"}
        and model.get("continuing_subword_prefix") == _GOES_ON
    )
    special = [str(one["content"]) for one in added] if isinstance(added, list) else []
    if not is_berts or not all(map(_is_bracketed, special)):
        return None
    assert isinstance(normalizer, Mapping)
    is_lower = normalizer.get("lowercase") is True
    strips = normalizer.get("strip_accents")
    return {
        _TOKENS: [_file_token(token) for token in tokens],
        _LOWERCASE: is_lower,
        _STRIP_ACCENTS: is_lower if strips is None else strips is True,
    }


def _is_bracketed(token: str) -> bool:
    return token.startswith("[") and token.endswith("]")


def _file_token(token: str) -> str:
    if _is_bracketed(token):
        return token
    return token[len(_GOES_ON) :] if token.startswith(_GOES_ON) else f"{SPACE}{token}"


def _around(tokens: Sequence[str], ends: Sequence[int]) -> dict[str, object]:
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
    return token if _is_bracketed(token) else f"{_GOES_ON}{token}"
