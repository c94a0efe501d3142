"""Encodes records as tokens, and says which of them the model learns to predict.

A text is encoded as a whole. An answer begins at the first token that the text up to it does not
share with the whole: a token that straddles the border is the first to be learned. Which tokens
count follows from places alone, never from what a token is; so an end token is learned even where
the tokenizer also pads with it.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from paredown.distill.data.record import (
    ASSISTANT,
    Conversation,
    PlainText,
    PromptCompletion,
    Record,
    UnusableError,
)
from paredown.distill.rows import Text
from paredown.errors import ConfigError, RequestError
from paredown.models.text.tokenizer import Tokenizer

_REWRITES = "the chat template rewrites what comes before an answer"


class Encoder:
    """`vocab_size` is the model's; a tokenizer may know tokens that the model does not have."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    def encode(self, record: Record) -> list[Text]:
        """Returns what is learned of the record. Raises UnusableError where that is nothing, and
        ConfigError for messages where the model has no chat template."""
        try:
            texts = self._texts(record)
        except RequestError as error:
            raise UnusableError(error.what) from error
        if any(max(text.token_ids) >= self._vocab_size for text in texts):
            raise UnusableError("a token that the model does not have")
        return texts

    def _texts(self, record: Record) -> list[Text]:
        if isinstance(record, PlainText):
            return [self._plain(record)]
        if isinstance(record, PromptCompletion):
            return [self._completion(record)]
        return self._conversation(record)

    def _plain(self, record: PlainText) -> Text:
        first = self._tokenizer.prefix_token_id
        ids = [*([] if first is None else [first]), *self._tokenizer.encode(record.text)]
        if len(ids) < 2:
            raise UnusableError("a text of less than two tokens")
        return Text(token_ids=[*ids, *(self._end if record.ends else [])])

    def _completion(self, record: PromptCompletion) -> Text:
        before = [*self._tokenizer.prompt_prefix]
        whole = [*before, *self._tokenizer.encode(record.prompt + record.completion)]
        start = _num_shared([*before, *self._tokenizer.encode(record.prompt)], whole)
        ids = [*whole, *self._end]
        return _learned(ids, [(start, len(ids))])

    def _conversation(self, record: Conversation) -> list[Text]:
        if not self._tokenizer.has_chat_template:
            raise ConfigError(
                "the data has conversations, and the model has no chat template",
                seen="messages",
                remedy="Give records with a prompt and a completion, or name a chat model.",
            )
        messages = record.messages
        whole = self._tokenizer.render_chat(messages, opens_answer=False)
        answers = [
            (self._begin(messages[:index], closed), closed)
            for index, message in enumerate(messages)
            if index and message["role"] == ASSISTANT
            for closed in [self._closed(messages[: index + 1])]
        ]
        if all(whole.startswith(closed) for _, closed in answers):
            spans = [(begin, len(closed)) for begin, closed in answers]
            return [self._spans_learned(whole, spans)]
        # An answer looks different once another one follows it: each is learned where it ends.
        return [self._spans_learned(closed, [(begin, len(closed))]) for begin, closed in answers]

    def _closed(self, messages: Sequence[Mapping[str, object]]) -> str:
        return self._tokenizer.render_chat(messages, opens_answer=False)

    def _begin(self, before: Sequence[Mapping[str, object]], closed: str) -> int:
        """Returns the character at which the answer to the messages `before` starts in the
        conversation that ends with it."""
        opened = self._tokenizer.render_chat(before)
        if closed.startswith(opened):
            return len(opened)
        # The template opens an answer with more than it keeps, as an empty thought.
        shared = _num_shared(opened, closed)
        if shared < len(self._closed(before)):
            raise UnusableError(_REWRITES)
        return shared

    def _spans_learned(self, whole: str, spans: Sequence[tuple[int, int]]) -> Text:
        """Returns the text with the tokens between these characters as targets. The template's own
        characters after an answer's end token are none."""
        encode = self._tokenizer.encode
        ids = encode(whole)
        found = []
        for begin, end in spans:
            start = _num_shared(encode(whole[:begin]), ids)
            stop = len(ids) if end == len(whole) else _num_shared(encode(whole[:end]), ids)
            ends = [at for at in range(start, stop) if ids[at] in self._tokenizer.eos_token_ids]
            found.append((start, ends[-1] + 1 if ends else stop))
        return _learned(ids, found)

    @property
    def _end(self) -> list[int]:
        end = self._tokenizer.eos_token_id
        return [] if end is None else [end]


def _learned(ids: list[int], spans: Sequence[tuple[int, int]]) -> Text:
    is_target = [False] * len(ids)
    for start, stop in spans:
        # A text's first token has nothing before it to be predicted from.
        for at in range(max(1, start), stop):
            is_target[at] = True
    if not any(is_target):
        raise UnusableError("nothing to be learned")
    return Text(token_ids=ids, is_target=is_target)


def _num_shared(one: Sequence[object], other: Sequence[object]) -> int:
    """Returns how many tokens or characters both begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
