"""Finds tokens that llama.cpp recognises by key or by text, whatever their ids
(src/llama-vocab.cpp): those that end an answer, and those that are matched whole in a text."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paredown.models.families.fields import Fields

BOS, EOS, EOT, EOM = (f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom"))
UNKNOWN = "tokenizer.ggml.unknown_token_id"
# As llama.cpp spells it.
SEPARATOR = "tokenizer.ggml.seperator_token_id"
_FILL_KEYS = tuple(f"tokenizer.ggml.fim_{name}_token_id" for name in ("pad", "rep", "sep"))
NORMAL, UNKNOWN_TYPE, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# Default ids by kind of tokenizer, where the file names none.
USUAL_IDS: dict[str, dict[str, int]] = {
    "llama": {BOS: 1, EOS: 2, UNKNOWN: 0},
    "bert": {BOS: 101, UNKNOWN: 100, SEPARATOR: 102},
    "t5": {EOS: 1, UNKNOWN: 2},
}
END_TEXTS = frozenset(
    {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]",
        "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
        "<｜end▁of▁sentence｜>", "[e~[",
    }
)  # fmt: skip
# Tokens of fill-in-the-middle prompts. The first that exists ends an answer.
_FILL_TEXTS: tuple[tuple[str, ...], ...] = (
    ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ("<|file_sep|>",),
)
# In a vocabulary with all tokens of one of these tuples, <|end|> only separates the parts of an
# answer.
_PARTED = (("<|return|>", "<|call|>"), ("<|call|>", "<|flush|>"), ("<|calls|>", "<|flush|>"))
# In vocabularies with one of these, </s> is ordinary text.
_MARKUP = ("<|tool_response>", "<|plamo:eos|>")


def end_ids(tokens: Sequence[str], fields: Fields) -> list[int]:
    """Returns the tokens that end an answer: eos first, then those of other keys, then those known
    by their texts. Raises CheckpointError for ids that are not in the vocabulary."""
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    found = [ids[text] for text in tokens if text in END_TEXTS]
    for key, choices in zip(_FILL_KEYS, _FILL_TEXTS, strict=True):
        named = [ids[text] for text in choices if text in ids][:1]
        found += [token_id(fields, key, len(tokens))] if key in fields.config else named
    texts = {tokens[one] for one in found}
    passed_over = set[str]()
    if any(set(parts) <= texts for parts in _PARTED):
        passed_over.add("<|end|>")
    if any(text in ids for text in _MARKUP):
        passed_over.add("</s>")
    named_ids = [
        token_id(fields, key, len(tokens)) for key in (EOS, EOT, EOM) if key in fields.config
    ]
    others = sorted(one for one in found if tokens[one] not in passed_over)
    return list(dict.fromkeys([*named_ids, *others]))


def token_id(fields: Fields, key: str, num_tokens: int) -> int:
    """Reads a token id. Raises CheckpointError for one that is not in the vocabulary."""
    found = fields.integer(key, minimum=0)
    if found >= num_tokens:
        raise fields.wrong(key, f"an id below {num_tokens}")
    return found


def matched_types(tokens: Sequence[str], types: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Returns the types, with tokens that are known by their texts as control tokens."""
    known = END_TEXTS.union(*_FILL_TEXTS)
    places = [place for place, text in enumerate(tokens) if text in known]
    found = types.copy()
    for place in places:
        if found[place] not in (CONTROL, USER_DEFINED):
            found[place] = CONTROL
    return found
