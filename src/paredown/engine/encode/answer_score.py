"""Scores by a decoder's answer (Qwen3-Reranker, arXiv 2506.05176, section 2): the model is asked
whether a document meets a query, and its logits for yes and no are the score.

Letters: N pairs, H hidden size.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.engine.encode.encode_job import TextCounts
from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.read_pairs import Pair
from paredown.engine.encode.read_texts import (
    ReadTexts,
    Truncate,
    check_truncate,
    encode_text,
    naming_text,
    too_long,
)
from paredown.executors.encoder_protocol import TokenText

Floats = npt.NDArray[np.float32]
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_TASK = "Given a web search query, retrieve relevant passages that answer the query"


def answer_rows(
    model: EncoderModel, pairs: Sequence[Pair], *, truncate: Truncate = "refuse"
) -> ReadTexts:
    """Returns the question for each pair, up to where the answer would begin. The model's default
    prompt takes the place of the usual task. Raises RequestError."""
    check_truncate(truncate)
    settings = model.settings
    before, after = (encode_text(model, text) for text in (_BEFORE, _AFTER))
    task = settings.prompts.get(settings.default_prompt or "query") or _TASK
    most = settings.max_tokens - len(before) - len(after)
    found, cut = list[TokenText](), list[int]()
    for number, (query, document) in enumerate(pairs):
        with naming_text(number, len(pairs)):
            question = f"<Instruct>: {task}\n<Query>: {query}\n<Document>: {document}"
            token_ids = encode_text(model, question)
            if len(token_ids) > most and truncate == "refuse":
                raise too_long(len(token_ids), most)
        if len(token_ids) > most:
            cut.append(number)
            # The query stands in front: "start" would cut it.
            token_ids = token_ids[:most]
        found.append(TokenText(token_ids=[*before, *token_ids, *after]))
    counts = TextCounts(num_tokens=tuple(len(text.token_ids) for text in found), cut=tuple(cut))
    return ReadTexts(texts=found, counts=counts)


def answer_scores(answers_2H: Floats, hidden_NH: Floats) -> Floats:
    """Returns the logit of yes minus that of no, [N, 1]; a sigmoid makes a probability of it."""
    logits_N2 = hidden_NH @ answers_2H.T
    scores_N1: Floats = logits_N2[:, :1] - logits_N2[:, 1:]
    return scores_N1
