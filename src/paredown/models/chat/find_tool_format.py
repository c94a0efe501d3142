"""Finds how a chat template writes calls, by rendering it and looking at what stands around the
names and arguments of a probe.

What was found is tried at once: the parser must read the template's own text back as the calls
that were rendered. A format that fails this is not told, so that no answer is misread.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

from paredown.models.chat.find_call_body import FoundCall, find_calls
from paredown.models.chat.probe import (
    CALLS,
    KEYS,
    NUMBERED_CALLS,
    TOOLS,
    Probe,
    ProbeCall,
    assistant_calls,
)
from paredown.models.chat.tool_format import (
    PYTHON_TAG,
    ArgumentsAs,
    Around,
    JsonCall,
    ToolFormat,
)
from paredown.models.chat.turn_event import CallArguments, CallStart, Content
from paredown.models.chat.turn_parser import TurnParser

# The arguments of a probe as Python prints a dict.
_PRINTED = f"{{'{KEYS[0]}'"
_ARGUMENTS_AS: tuple[ArgumentsAs, ...] = ("object", "text")


def find_tool_format(probe: Probe) -> ToolFormat | None:
    """Returns the format of calls; None where the template writes no calls, or none that can be
    read. Arguments are given as text where the template refuses objects, or prints them as Python
    does: one that writes objects in a way that cannot be read writes a text in yet another."""
    takes_objects = False
    for arguments_as, calls, content in product(_ARGUMENTS_AS, (CALLS, NUMBERED_CALLS), ("", None)):
        bodies = [
            probe.answer(assistant_calls(calls[:num], arguments_as, content)) for num in (1, 2)
        ]
        if arguments_as == "object" and bodies[0] is not None:
            takes_objects = takes_objects or _PRINTED not in bodies[0]
        elif takes_objects:
            break
        for found in _formats(bodies, calls):
            form = replace(found, arguments_as=arguments_as)
            if _is_marked(form) and _reads_back(form, bodies, calls):
                return _with_python_tag(form, probe)
    return None


def _formats(bodies: Sequence[str | None], calls: Sequence[ProbeCall]) -> Iterator[ToolFormat]:
    """Yields what the formats may be that the texts of one call and of two show. A text is None
    where the template refuses the turn."""
    single, both = bodies
    if single is None:
        return
    for one in find_calls(single, calls[:1]):
        if both is not None:
            for two in find_calls(both, calls):
                yield _of_both(one, two)
        yield ToolFormat(
            body=one.body,
            call=Around(start=one.before.lstrip(), end=one.after),
            is_parallel=False,
        )


def _of_both(one: FoundCall, two: FoundCall) -> ToolFormat:
    """Tells what stands around all calls from what stands around each: the latter is repeated
    between two."""
    if isinstance(two.body, JsonCall) and two.body.is_array:
        # Further lines are instructions for the next turn.
        after = "".join(one.after.splitlines(keepends=True)[:1])
        return ToolFormat(body=two.body, section=Around(start=one.before.lstrip(), end=after))
    between = two.between
    end = _common_prefix(one.after, between)
    start = _common_suffix(one.before, between[len(end) :])
    # Whitespace before the first call stands behind the text of a turn, and between calls.
    marker = start.lstrip()
    return ToolFormat(
        body=two.body,
        section=Around(
            start=one.before.removesuffix(start).lstrip(), end=one.after.removeprefix(end)
        ),
        call=Around(start=marker, end=end),
        between=between[len(end) : len(between) - len(marker)],
    )


def _is_marked(form: ToolFormat) -> bool:
    """Returns whether a tag or a bracket begins a call, since a name alone would be found in any
    text, and whether nothing of the probe is taken for a marker."""
    probes = [text for call in CALLS + NUMBERED_CALLS for text in (call.id, call.name)]
    if any(text in marker for marker in form.markers for text in probes):
        return False
    return isinstance(form.body, JsonCall) or any(one[0] in "<[" for one in form.triggers)


def _reads_back(form: ToolFormat, bodies: Sequence[str | None], calls: Sequence[ProbeCall]) -> bool:
    for body, num in zip(bodies, (1, 2), strict=True):
        if num > 1 and not form.is_parallel:
            break
        if body is None:
            return False
        parser = TurnParser(tool_format=form, reasoning=None, tools=TOOLS, reasoning_open=False)
        events = [*parser.feed(body), *parser.finish()]
        names = [event.name for event in events if isinstance(event, CallStart)]
        texts = ["" for _ in names]
        for event in events:
            if isinstance(event, CallArguments):
                texts[event.index] += event.text
        said = "".join(event.text for event in events if isinstance(event, Content))
        if names != [call.name for call in calls[:num]] or said.strip():
            return False
        if [_loaded(text) for text in texts] != [call.arguments for call in calls[:num]]:
            return False
    return True


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _with_python_tag(form: ToolFormat, probe: Probe) -> ToolFormat:
    """Llama 3 puts a token before calls at will, which its template knows of."""
    knows = any(PYTHON_TAG in text for text in probe.templates.texts().values())
    return replace(form, other_start=PYTHON_TAG) if form.is_bare and knows else form


def _common_prefix(first: str, second: str) -> str:
    num = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        num += 1
    return _cut_at_tag(first[:num], first[num:], "end")


def _common_suffix(first: str, second: str) -> str:
    num = 0
    for one, other in zip(reversed(first), reversed(second), strict=False):
        if one != other:
            break
        num += 1
    cut = len(first) - num
    return _cut_at_tag(first[cut:], first[:cut], "start")


def _cut_at_tag(common: str, rest: str, side: Literal["start", "end"]) -> str:
    """Leaves out a part of a tag at the border of what two texts share."""
    if side == "end":
        opened, closed = common.rfind("<"), common.rfind(">")
        return common[:opened] if rest and opened > closed else common
    opened, closed = common.find("<"), common.find(">")
    is_cut = bool(rest) and closed >= 0 and (opened < 0 or closed < opened)
    return common[closed + 1 :] if is_cut else common
