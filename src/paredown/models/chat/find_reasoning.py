"""Finds how a chat template marks reasoning."""

import re

from paredown.models.chat.probe import CALLS, CONTENT, THOUGHT, Message, Probe, assistant_calls
from paredown.models.chat.reasoning_format import ReasoningFormat

# The last tag before the reasoning, and the first behind it.
_TAG = r"<[^<>\s]{1,40}>|\[[A-Z_]{1,40}\]"
_START = re.compile(rf"({_TAG})\s*$")
_END = re.compile(rf"^\s*({_TAG})")
# What is no word in a tag, or says which side it stands on.
_SIDE = re.compile(r"[^\w:]|_|(?i:start|begin|open|end|close)")
# Pairs that models write though their template leaves the reasoning of earlier turns out.
_KNOWN = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
# Template values that turn reasoning on and off.
SWITCHES = ("enable_thinking", "thinking")


def find_reasoning(probe: Probe) -> ReasoningFormat | None:
    """Returns the marks that stand around the reasoning of a turn; else those of a known pair of
    which the template has the end. None where it has neither."""
    found = _rendered_marks(probe) or _known_marks(probe)
    if found is None:
        return None
    form = ReasoningFormat(start=found[0], end=found[1], switch=_switch(probe))
    prompt = probe.render(opens_answer=True, has_tools=False)
    return ReasoningFormat(
        start=form.start,
        end=form.end,
        switch=form.switch,
        is_opened=prompt is not None and form.stands_open(prompt),
    )


def _rendered_marks(probe: Probe) -> tuple[str, str] | None:
    """Returns the marks that a template writes around the reasoning of an earlier turn, which some
    do only for turns that call tools."""
    thought: Message = {"reasoning_content": THOUGHT}
    turns: list[tuple[Message, bool]] = [
        ({"role": "assistant", "content": CONTENT, **thought}, False),
        ({**assistant_calls(CALLS[:1], "object", ""), **thought}, True),
        ({**assistant_calls(CALLS[:1], "text", ""), **thought}, True),
    ]
    for turn, has_tools in turns:
        text = probe.render(turn, has_tools=has_tools)
        if text is None or THOUGHT not in text:
            continue
        before, after = text.split(THOUGHT, 1)
        start, end = _START.search(before), _END.search(after)
        if start and end and _are_pair(start[1], end[1]):
            return start[1], end[1]
    return None


def _are_pair(start: str, end: str) -> bool:
    """Returns whether two tags differ, and only in what says which of them is the first."""
    words = [_SIDE.sub("", tag) for tag in (start, end)]
    return start != end and words[0] == words[1] != ""


def _known_marks(probe: Probe) -> tuple[str, str] | None:
    sources = probe.templates.texts().values()
    return next((pair for pair in _KNOWN if any(pair[1] in text for text in sources)), None)


def _switch(probe: Probe) -> str | None:
    for name in SWITCHES:
        texts = [
            probe.render(opens_answer=True, has_tools=False, values={name: value})
            for value in (False, True)
        ]
        if texts[0] != texts[1]:
            return name
    return None
