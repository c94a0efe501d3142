"""RenderedChat: the text of a conversation in which some control tokens are only text.

A chat template makes one text of the model's own markers and of what clients wrote. A tokenizer
reads every control token in it as one, so that a tool result with "<|im_end|>" ends its turn.
Transformers, and servers that follow it, encode that text as it is. Here a control token in a text
that is not trusted is replaced before rendering by a character that the conversation does not hold.
The template copies, trims or escapes it like any letter. When the text is encoded
(models/text/marked_text.py), the character becomes the token's letters again, as ordinary text.

Roles that a template writes as words ("### User:") are no tokens, and no one can tell them from
such words in a text.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

# Characters that Unicode leaves to private use, which no text needs.
_PRIVATE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
# How control tokens are written that a tokenizer does not call special, such as "<tool_call>".
_TAG = re.compile(r"<.+>|\[.+\]", re.DOTALL)
# Whose texts are only text: roles of messages, and "tools" for what requests say of tools.
TOOL_RESULTS = frozenset(["tool"])
EVERYTHING = frozenset(["system", "user", "assistant", "tool", "tools"])


@dataclass(frozen=True, kw_only=True)
class RenderedChat:
    """`text` has the characters of `letters` in place of the control tokens that are only text."""

    text: str
    letters: Mapping[str, str] = field(default_factory=dict)

    @property
    def plain(self) -> str:
        """Returns the text as people read it."""
        return self.text.translate({ord(one): text for one, text in self.letters.items()})


@dataclass(frozen=True, kw_only=True)
class ControlTokens:
    """The texts of a tokenizer's control tokens."""

    texts: frozenset[str]

    @classmethod
    def of(cls, tokens: Iterable[tuple[str, bool]]) -> "ControlTokens":
        """Takes the added tokens of a tokenizer, each with whether it is special. Words and blanks
        that are no control tokens may be among them."""
        return cls(
            texts=frozenset(t for t, special in tokens if t and (special or _TAG.fullmatch(t)))
        )

    def mark(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None,
        sources: Collection[str],
    ) -> "MarkedChat":
        """Returns the conversation with the control tokens replaced that are in texts of
        `sources`."""
        doubted = [message for message in messages if message.get("role") in sources]
        if tools is not None and "tools" in sources:
            doubted += tools
        found = {token for text in _texts(doubted) for token in self._pattern.findall(text)}
        if not found:
            return MarkedChat(messages=messages, tools=tools, letters={})
        used = set(chain.from_iterable(_texts([*messages, *(tools or ())])))
        free = (chr(i) for part in _PRIVATE for i in part if chr(i) not in used)
        replaced = dict(zip(sorted(found), free, strict=False))
        return MarkedChat(
            messages=[
                self._replace_fields(message, replaced)
                if message.get("role") in sources
                else message
                for message in messages
            ],
            tools=[self._replace_fields(tool, replaced) for tool in tools]
            if tools is not None and "tools" in sources
            else tools,
            letters={letter: token for token, letter in replaced.items()},
        )

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.texts, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def _replace_fields(
        self, fields: Mapping[str, object], replaced: Mapping[str, str]
    ) -> dict[str, object]:
        return {key: self._replace(value, replaced) for key, value in fields.items()}

    def _replace(self, value: object, replaced: Mapping[str, str]) -> object:
        if isinstance(value, str):
            return self._pattern.sub(lambda found: replaced[found[0]], value)
        if isinstance(value, Mapping):
            return {
                self._replace(key, replaced): self._replace(one, replaced)
                for key, one in value.items()
            }
        if isinstance(value, Sequence):
            return [self._replace(one, replaced) for one in value]
        return value


@dataclass(frozen=True, kw_only=True)
class MarkedChat:
    """A conversation in which each key of `letters` stands for a control token that is only
    text."""

    messages: Sequence[Mapping[str, object]]
    tools: Sequence[Mapping[str, object]] | None
    letters: Mapping[str, str]


def _texts(value: object) -> Iterator[str]:
    """Yields the texts in a value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(key)
            yield from _texts(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts(one)
