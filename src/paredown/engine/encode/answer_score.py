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
from paredown.errors import RequestError
from paredown.executors.encoder_protocol import TokenText

Floats = npt.NDArray[np.float32]
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
# Stands for a text where a template is tried.
_PROBE = "paredown-probe"
_TASK = "Given a web search query, retrieve relevant passages that answer the query"


def answer_rows(
    model: EncoderModel, pairs: Sequence[Pair], *, truncate: Truncate = "refuse"
) -> ReadTexts:
    """Returns the question for each pair, up to where the answer would begin: by the model's chat
    template, if that has roles for the two texts, as sentence-transformers asks; else in the words
    of Qwen3-Reranker. Raises RequestError."""
    check_truncate(truncate)
    ask = _by_template if _has_roles(model) else _in_words
    after = encode_text(model, ask(model, ("", _PROBE)).rpartition(_PROBE)[2])
    most, found, cut = model.settings.max_tokens, list[TokenText](), list[int]()
    for number, pair in enumerate(pairs):
        with naming_text(number, len(pairs)):
            token_ids = encode_text(model, ask(model, pair))
            if len(token_ids) > most and truncate == "refuse":
                raise too_long(len(token_ids), most)
        if len(token_ids) > most:
            cut.append(number)
            # The document stands last; what follows it stays. "start" would cut the query.
            token_ids = [*token_ids[: most - len(after)], *after]
        found.append(TokenText(token_ids=token_ids))
    counts = TextCounts(num_tokens=tuple(len(text.token_ids) for text in found), cut=tuple(cut))
    return ReadTexts(texts=found, counts=counts)


def _prompt(model: EncoderModel) -> str:
    settings = model.settings
    return settings.prompts.get(settings.default_prompt or "query", "")


def _in_words(model: EncoderModel, pair: Pair) -> str:
    task = _prompt(model) or _TASK
    question = f"<Instruct>: {task}\n<Query>: {pair[0]}\n<Document>: {pair[1]}"
    return f"{_BEFORE}{question}{_AFTER}"


def _by_template(model: EncoderModel, pair: Pair) -> str:
    messages: list[dict[str, object]] = [
        {"role": role, "content": text}
        for role, text in zip(("system", "query", "document"), (_prompt(model), *pair), strict=True)
        if text or role != "system"
    ]
    return model.tokenizer.render_chat(messages, opens_answer=False)


def _has_roles(model: EncoderModel) -> bool:
    """Returns whether the chat template repeats the texts of both roles."""
    if not model.tokenizer.has_chat_template:
        return False
    try:
        shown = _by_template(model, (_PROBE, _PROBE))
    except RequestError:
        return False
    return shown.count(_PROBE) >= 2


def answer_scores(answers_2H: Floats, hidden_NH: Floats) -> Floats:
    """Returns the logit of yes minus that of no, [N, 1]; a sigmoid makes a probability of it."""
    logits_N2 = hidden_NH @ answers_2H.T
    scores_N1: Floats = logits_N2[:, :1] - logits_N2[:, 1:]
    return scores_N1
