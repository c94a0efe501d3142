"""Answer: what a teacher said, read from the JSON of a chat completion."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paredown.json_text import JsonTextError, parse_json

_CUT = "length"
_FILTERED = "content_filter"
# How assistants begin when they refuse; an answer that is long has said something.
_SORRY = r"(?:(?:i['’]?m|i am|we['’]re) (?:\w+ )?sorry|sorry|i apologi[sz]e|unfortunately)"
_UNABLE = (
    r"(?:i (?:can['’]?t|cannot|can not|am unable to|am not able to|won['’]?t|will not)"
    r"|i['’]m (?:unable|not able|not allowed) to|as an ai\b)"
)
_REFUSAL = re.compile(rf"\W*(?:{_SORRY}\b[\s,.;:]*(?:but )?)?{_UNABLE}", re.IGNORECASE)
_MOST_REFUSAL_CHARS = 400


class GarbageError(ValueError):
    """The body is no chat completion. Its text says why."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`text` may be empty. `num_tokens` counts question and answer; None where the teacher does
    not say."""

    text: str
    finish_reason: str | None
    num_tokens: int | None

    @property
    def was_cut(self) -> bool:
        """Whether it reached the limit of its tokens."""
        return self.finish_reason == _CUT

    def fault(self) -> str | None:
        """Returns why nothing is to be learned from it: refused or empty; None where there is
        something."""
        if self.finish_reason == _FILTERED:
            return "refused"
        if not self.text.strip():
            return "empty"
        is_short = len(self.text) <= _MOST_REFUSAL_CHARS
        return "refused" if is_short and _REFUSAL.match(self.text) else None


def parse_answer(data: bytes) -> Answer:
    """Raises GarbageError."""
    try:
        body = parse_json(data)
    except JsonTextError as error:
        raise GarbageError(f"no JSON: {error}") from error
    if not isinstance(body, dict):
        raise GarbageError("no JSON object")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise GarbageError("no choices")
    message, reason = choices[0].get("message"), choices[0].get("finish_reason")
    if not isinstance(message, dict) or not isinstance(reason, str | None):
        raise GarbageError("a choice without a message")
    text = message.get("content")
    if message.get("refusal"):
        text, reason = "", _FILTERED
    if not isinstance(text, str | None):
        raise GarbageError("a message that is no text")
    if not is_unicode(text or ""):
        raise GarbageError("a text with half a character")
    return Answer(text=text or "", finish_reason=reason, num_tokens=_num_tokens(body))


def is_unicode(text: str) -> bool:
    """Returns whether it can be written as UTF-8; JSON can hold halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _num_tokens(body: Mapping[str, object]) -> int | None:
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    known = [one for one in counts if isinstance(one, int) and one >= 0]
    total = usage.get("total_tokens")
    told = [total] if isinstance(total, int) and total >= 0 else []
    both = [sum(known)] if len(known) == len(counts) else []
    return max(told + both, default=None)
