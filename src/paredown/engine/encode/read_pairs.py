"""Pairs of texts as a cross-encoder reads them: both in one, with the tokens that the tokenizer
puts around and between them."""

from collections.abc import Sequence

from paredown.engine.encode.encode_job import TextCounts
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.read_texts import (
    ReadTexts,
    Truncate,
    check_truncate,
    encode_text,
    naming_text,
    too_long,
)
from paredown.engine.prompt import as_token_ids, check_length
from paredown.executors.encoder_protocol import TokenText
from paredown.models.text.pair_form import PairForm

Pair = tuple[str, str]


def read_pairs(
    model: EncoderModel, pairs: Sequence[Pair], *, truncate: Truncate = "refuse"
) -> ReadTexts:
    """Returns the tokens of the pairs. Raises RequestError, which tells the pair's number, for what
    the model cannot read."""
    check_truncate(truncate)
    form, most = model.tokenizer.pair_form, model.settings.max_tokens
    found, cut = list[TokenText](), list[int]()
    # One text often stands in all pairs.
    known: dict[str, list[int]] = {}
    for number, pair in enumerate(pairs):
        with naming_text(number, len(pairs)):
            texts = [_tokens(model, text, known, truncate) for text in pair]
            num_tokens = sum(map(len, texts)) + form.num_special_tokens
            if num_tokens > most:
                if truncate == "refuse":
                    raise too_long(num_tokens, most)
                texts = _cut(texts, most - form.num_special_tokens, truncate)
                cut.append(number)
            found.append(_joined(form, texts))
    counts = TextCounts(num_tokens=tuple(len(text.token_ids) for text in found), cut=tuple(cut))
    return ReadTexts(texts=found, counts=counts)


def _tokens(
    model: EncoderModel, text: str, known: dict[str, list[int]], truncate: Truncate
) -> list[int]:
    if text not in known:
        if truncate == "refuse":
            check_length(model.tokenizer, text, model.settings.max_tokens)
        known[text] = as_token_ids(encode_text(model, text), model.spec.vocab_size)
    return known[text]


def _cut(texts: Sequence[list[int]], most: int, truncate: Truncate) -> list[list[int]]:
    """Shortens the longer of the two first, as the tokenizers library does ("longest_first")."""
    shorter, longer = sorted(map(len, texts))
    longer = max(shorter, most - shorter)
    if shorter + longer > most:
        shorter, longer = most // 2, most - most // 2
    is_swapped = len(texts[0]) > len(texts[1])
    kept = (longer, shorter) if is_swapped else (shorter, longer)
    if truncate == "end":
        return [text[:length] for text, length in zip(texts, kept, strict=True)]
    return [text[len(text) - length :] for text, length in zip(texts, kept, strict=True)]


def _joined(form: PairForm, texts: Sequence[list[int]]) -> TokenText:
    token_ids, types = form.joined(*texts)
    return TokenText(token_ids=token_ids, type_ids=types if any(types) else None)
