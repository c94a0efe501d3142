"""Reads how a ColBERT checkpoint reads its texts: from sentence-transformers' MultiVectorEncoder,
from PyLate, or from the artifact.metadata of ColBERT's own code."""

import string
from collections.abc import Mapping, Sequence
from pathlib import Path

from paredown.models.encoder_settings import LateInteraction
from paredown.models.families.fields import Fields
from paredown.models.files.json_file import read_optional_json_object
from paredown.models.files.whole_file import is_there
from paredown.models.heads.module_list import Module

METADATA = "artifact.metadata"
# The class that config.json of ColBERT's own code names.
ARCHITECTURE = "HF_ColBERT"
# PyLate's field for what artifact.metadata calls `attend_to_mask_tokens`.
_SEES = "attend_to_expansion_tokens"
_NUM_QUERY_TOKENS = 32
_PUNCTUATION = tuple(string.punctuation)
_QUERIES = "query"


def is_stanford(path: Path, config: Mapping[str, object]) -> bool:
    """Returns whether the folder was written by ColBERT's own code."""
    architectures = config.get("architectures")
    named = isinstance(architectures, list) and ARCHITECTURE in architectures
    return named or is_there(path / METADATA)


def read_stanford(path: Path) -> LateInteraction:
    """Reads artifact.metadata; what it leaves out is as in ColBERTv2 (arXiv 2112.01488)."""
    fields = Fields(read_optional_json_object(path / METADATA), METADATA)
    return LateInteraction(
        query_marker=fields.text("query_token_id", "[unused0]"),
        document_marker=fields.text("doc_token_id", "[unused1]"),
        num_document_tokens=fields.optional_integer("doc_maxlen"),
        expansion_tokens=fields.integer("query_maxlen", _NUM_QUERY_TOKENS),
        sees_expansion=fields.flag("attend_to_mask_tokens", False),
        skipped_words=_PUNCTUATION if fields.flag("mask_punctuation", True) else (),
    )


def read_late_interaction(
    shared: Fields, transformer: Fields, modules: Sequence[Module]
) -> LateInteraction:
    """Reads the settings of a model whose modules give a vector for each token. `shared` are the
    fields of config_sentence_transformers.json, where PyLate has them all; `transformer` those of
    sentence_bert_config.json."""
    masks = [module.fields for module in modules if module.kind == "MultiVectorMask"]
    if not masks:
        return _read_pylate(shared)
    tasks = masks[0].config.get("skiplist_tasks")
    expansion = transformer.config.get("query_expansion")
    found = LateInteraction(
        num_query_tokens=transformer.optional_integer("query_length"),
        num_document_tokens=transformer.optional_integer("document_length"),
        skipped_words=_words(masks[0], ()),
        skips_in_queries=isinstance(tasks, list) and _QUERIES in tasks,
    )
    if expansion is None:
        return found
    if not isinstance(expansion, Mapping):
        raise transformer.wrong("query_expansion", "an object")
    own = Fields(expansion, f"{transformer.where} (query_expansion)")
    strategy = own.text("strategy")
    if strategy not in ("fixed", "min"):
        raise own.wrong("strategy", "fixed or min")
    token = own.config.get("token")
    return LateInteraction(
        num_query_tokens=found.num_query_tokens,
        num_document_tokens=found.num_document_tokens,
        skipped_words=found.skipped_words,
        skips_in_queries=found.skips_in_queries,
        expansion_tokens=own.integer("length"),
        cuts_at_expansion=strategy == "fixed",
        sees_expansion=own.flag("attend", False),
        expansion_token=None if token is None else own.text("token"),
    )


def _read_pylate(fields: Fields) -> LateInteraction:
    """Reads PyLate's fields. Its markers are tokens that stand before a prompt."""
    num_query_tokens = fields.integer("query_length", _NUM_QUERY_TOKENS)
    expands = fields.flag("do_query_expansion", True)
    return LateInteraction(
        query_marker=_marker(fields, "query_prefix"),
        document_marker=_marker(fields, "document_prefix"),
        num_query_tokens=None if expands else num_query_tokens,
        num_document_tokens=fields.optional_integer("document_length"),
        expansion_tokens=num_query_tokens if expands else None,
        sees_expansion=fields.config.get(_SEES) is True,
        skipped_words=_words(fields, _PUNCTUATION),
    )


def _marker(fields: Fields, name: str) -> str:
    return "" if fields.config.get(name) is None else fields.text(name)


def _words(fields: Fields, default: tuple[str, ...]) -> tuple[str, ...]:
    words = fields.config.get("skiplist_words")
    if words is None:
        return default
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise fields.wrong("skiplist_words", "a list of words")
    return tuple(words)
