"""Converts a GGUF file's unigram tokenizer (`tokenizer.ggml.model` t5) to parts of
tokenizer.json."""

from collections.abc import Sequence

from paredown.errors import UnsupportedError
from paredown.models.families.fields import Fields
from paredown.models.gguf.header import Value
from paredown.models.gguf.word_piece import SPACE

_CHARSMAP, _ADD_SPACE, _REMOVE_SPACES = (
    f"tokenizer.ggml.{name}"
    for name in ("precompiled_charsmap", "add_space_prefix", "remove_extra_whitespaces")
)


def unigram(
    tokens: Sequence[str],
    scores: Sequence[float],
    unknown_id: int,
    charsmap: Value | None,
    fields: Fields,
) -> dict[str, object]:
    """Returns the parts. Raises UnsupportedError for a `charsmap`, SentencePiece's table of
    character replacements."""
    normalizers: list[dict[str, object]] = []
    if charsmap is not None:
        raise UnsupportedError(
            f"{fields.where} replaces characters by a table, which is not read here",
            seen=_CHARSMAP,
            remedy="Use the model's Hugging Face folder.",
        )
    removes = fields.flag(_REMOVE_SPACES, False)
    if removes:
        normalizers += [_replace(r" +\z", ""), _replace(r"\A +", ""), _replace(" +", " ")]
    # llama.cpp puts a space before every word when it removes extra spaces.
    if removes or fields.flag(_ADD_SPACE, True):
        # A text of only spaces has no first word.
        normalizers.append(_replace(r"\A(?=[\s\S]*[^ ])", " "))
    normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    decoders = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "Unigram",
            "unk_id": unknown_id,
            "vocab": [list(pair) for pair in zip(tokens, scores, strict=True)],
            "byte_fallback": False,
        },
    }


def _replace(pattern: str, content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
