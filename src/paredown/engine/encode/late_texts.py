"""Texts as ColBERT (arXiv 2004.12832, section 3.2) reads them.

A query is marked, cut to the length of queries, and filled up with mask tokens where the model's
settings say so. A document is marked and cut, and the vectors of skipped words are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paredown.engine.encode.encode_job import Row, TextCounts
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.prompts import PromptChoice
from paredown.engine.encode.read_texts import Text, Truncate, read_texts
from paredown.errors import CheckpointError
from paredown.executors.encoder_protocol import TokenText
from paredown.models.encoder_settings import LateInteraction
from paredown.shown import quoted


@dataclass(frozen=True, kw_only=True)
class LateTexts:
    """The tokens of texts, and the places of those whose vectors count."""

    texts: list[TokenText]
    counts: TextCounts
    places: list[list[int]]

    @property
    def token_ids(self) -> list[list[int]]:
        """The tokens whose vectors count."""
        return [
            [text.token_ids[place] for place in places]
            for text, places in zip(self.texts, self.places, strict=True)
        ]

    def counting(self, rows: Sequence[Row]) -> list[Row]:
        """Returns the vectors that count."""
        return [row[places] for row, places in zip(rows, self.places, strict=True)]


def read_late_texts(
    model: EncoderModel, texts: Sequence[Text], *, is_query: bool, truncate: Truncate
) -> LateTexts:
    """Returns the tokens of queries or documents of a model that compares tokens. A text that is as
    long as the model takes leaves room for its marker. Raises RequestError."""
    late = model.settings.late_interaction or LateInteraction()
    marker = _marker(model, late.query_marker if is_query else late.document_marker)
    prompt = PromptChoice(input_type="query" if is_query else "document")
    # A query of ColBERT is always cut to the length that it is filled up to.
    is_cut = is_query and late.expansion_tokens is not None and late.cuts_at_expansion
    read = read_texts(
        model,
        texts,
        prompt=prompt.before(texts, model.settings) if isinstance(texts[0], str) else "",
        truncate="end" if is_cut else truncate,
        max_tokens=_most_tokens(model, late, is_query=is_query) - len(marker),
    )
    num_before = len(model.tokenizer.prompt_prefix) if isinstance(texts[0], str) else 0
    marked = [
        [*text.token_ids[:num_before], *marker, *text.token_ids[num_before:]] for text in read.texts
    ]
    fill = _expansion(model, late) if is_query and late.expansion_tokens is not None else None
    found = [_filled(one, fill, late) for one in marked]
    skipped = _skipped(model, late) if late.skips_in_queries or not is_query else frozenset()
    return LateTexts(
        texts=found,
        counts=TextCounts(
            num_tokens=tuple(len(text.token_ids) for text in found),
            cut=() if is_cut and truncate == "refuse" else read.counts.cut,
        ),
        places=[
            [place for place, one in enumerate(text.token_ids) if one not in skipped]
            for text in found
        ],
    )


def _most_tokens(model: EncoderModel, late: LateInteraction, *, is_query: bool) -> int:
    asked = late.num_query_tokens if is_query else late.num_document_tokens
    lengths = [model.settings.max_tokens] if asked is None else [model.settings.max_tokens, asked]
    if is_query and late.expansion_tokens is not None and late.cuts_at_expansion:
        lengths.append(late.expansion_tokens)
    return min(lengths)


def _filled(token_ids: list[int], fill: int | None, late: LateInteraction) -> TokenText:
    num_missing = max(0, (late.expansion_tokens or 0) - len(token_ids)) if fill is not None else 0
    return TokenText(
        token_ids=[*token_ids, *[fill] * num_missing] if fill is not None else token_ids,
        num_unseen=0 if late.sees_expansion else num_missing,
    )


def _marker(model: EncoderModel, marker: str) -> list[int]:
    return [_token(model, marker, "marker")] if marker else []


def _expansion(model: EncoderModel, late: LateInteraction) -> int:
    if late.expansion_token is not None:
        return _token(model, late.expansion_token, "expansion token")
    mask = next((one for one in ("[MASK]", "<mask>") if one in model.vocabulary), None)
    suffix = model.tokenizer.prompt_suffix
    if mask is None and suffix:
        return suffix[-1]
    return _token(model, mask or "[MASK]", "mask token")


def _skipped(model: EncoderModel, late: LateInteraction) -> frozenset[int]:
    vocabulary = model.vocabulary
    return frozenset(vocabulary[word] for word in late.skipped_words if word in vocabulary)


def _token(model: EncoderModel, name: str, what: str) -> int:
    if name not in model.vocabulary:
        raise CheckpointError(
            f"the tokenizer lacks the {what} that the model's settings name",
            seen=quoted(name, 80),
            remedy="Take the tokenizer of the model's own publisher.",
        )
    return model.vocabulary[name]
