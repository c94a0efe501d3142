"""EncoderSettings: what the files of an encoder say about texts and scores, beside its weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
# What a classifier's numbers pass before they are scores.
ScoreActivation = Literal["identity", "sigmoid", "tanh", "softmax"]


@dataclass(frozen=True, kw_only=True)
class LateInteraction:
    """How ColBERT (arXiv 2004.12832) reads texts. Lengths count all tokens, special ones too.

    `query_marker`, `document_marker`  tokens in second place that tell the two apart; "" for none
    `num_query_tokens`   queries are cut to this length; None: as all texts
    `num_document_tokens`   documents likewise
    `expansion_tokens`   queries are filled up to this length with mask tokens; None: not
    `cuts_at_expansion`  whether longer queries are cut to that length
    `sees_expansion`     whether tokens see the mask tokens that were added
    `expansion_token`    in their place; None: the tokenizer's mask token, else its end token
    `skipped_words`      tokens that no document is found by
    `skips_in_queries`   whether queries leave them out too
    """

    query_marker: str = ""
    document_marker: str = ""
    num_query_tokens: int | None = None
    num_document_tokens: int | None = None
    expansion_tokens: int | None = None
    cuts_at_expansion: bool = True
    sees_expansion: bool = False
    expansion_token: str | None = None
    skipped_words: tuple[str, ...] = ()
    skips_in_queries: bool = False


@dataclass(frozen=True, kw_only=True)
class AnswerScore:
    """A decoder that ranks by the logits of its next token (Qwen3-Reranker): the score is that of
    `true_token_id` minus that of `false_token_id`, if there is one."""

    true_token_id: int
    false_token_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """`max_tokens`   the longest text in tokens, special ones too: longer ones are cut
    `lowercases`       whether texts become lowercase, whatever the tokenizer does
    `prompts`          texts put before a text, by name: "query", "document", ...
    `default_prompt`   the name of the one that is used where none is named
    `pools_prompt`     whether the tokens of a prompt count in a text's vector
    `similarity`       how two vectors are compared
    `dimensions`       sizes to which vectors may be cut (Matryoshka, arXiv 2205.13147); empty where
                       the files name none
    `cut_size`         the size to which vectors are cut unless another is asked for
    `labels`           the names of a classifier's numbers
    `activation`       what these pass before they are scores
    """

    max_tokens: int
    lowercases: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    pools_prompt: bool = True
    similarity: Similarity = "cosine"
    dimensions: tuple[int, ...] = ()
    cut_size: int | None = None
    labels: tuple[str, ...] = ()
    activation: ScoreActivation = "identity"
    late_interaction: LateInteraction | None = None
    answer_score: AnswerScore | None = None
