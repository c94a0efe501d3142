"""Finds the calls of a probe in the text that a template made of them, in each of three forms."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paredown.models.chat.probe import KEYS, ProbeCall
from paredown.models.chat.tool_format import Around, JsonCall, NamedCall, TaggedCall

Body = JsonCall | NamedCall | TaggedCall
Span = tuple[int, int]
_DECODER = json.JSONDecoder()
_JSON_STARTS = re.compile(r"[\[{]")


@dataclass(frozen=True, kw_only=True)
class FoundCall:
    """Calls in a text, with what stands before the first, between two, and behind the last."""

    body: Body
    before: str
    between: str
    after: str


def find_calls(text: str, calls: Sequence[ProbeCall]) -> Iterator[FoundCall]:
    """Yields the forms in which all of `calls`, one or two, stand in `text`."""
    for find in (_find_array, _find_objects, _find_named, _find_tagged):
        if (found := find(text, calls)) is not None:
            body, spans = found
            yield FoundCall(
                body=body,
                before=text[: spans[0][0]],
                between=text[spans[0][1] : spans[-1][0]],
                after=text[spans[-1][1] :],
            )


Found = tuple[Body, list[Span]]


def _find_array(text: str, calls: Sequence[ProbeCall]) -> Found | None:
    for start, end, value in _json_values(text):
        if isinstance(value, list) and len(value) == len(calls):
            bodies = [_json_call(one, call) for one, call in zip(value, calls, strict=True)]
            if bodies[0] is not None and all(body == bodies[0] for body in bodies):
                return _as_array(bodies[0]), [(start, end)]
    return None


def _as_array(body: JsonCall) -> JsonCall:
    return JsonCall(
        name_key=body.name_key,
        arguments_key=body.arguments_key,
        id_key=body.id_key,
        wrapper_key=body.wrapper_key,
        is_array=True,
    )


def _find_objects(text: str, calls: Sequence[ProbeCall]) -> Found | None:
    bodies: list[JsonCall] = []
    spans: list[Span] = []
    for start, end, value in _json_values(text):
        is_inside = bool(spans) and start < spans[-1][1]
        if is_inside or len(bodies) == len(calls):
            continue
        if (body := _json_call(value, calls[len(bodies)])) is not None:
            bodies.append(body)
            spans.append((start, end))
    if len(bodies) < len(calls) or any(body != bodies[0] for body in bodies):
        return None
    return bodies[0], spans


def _json_values(text: str) -> Iterator[tuple[int, int, object]]:
    for found in _JSON_STARTS.finditer(text):
        try:
            value, end = _DECODER.raw_decode(text, found.start())
        except ValueError:
            continue
        yield found.start(), end, value


def _json_call(value: object, call: ProbeCall) -> JsonCall | None:
    """Returns the keys of a call in an object."""
    if not isinstance(value, Mapping):
        return None
    name_key = next((key for key, one in value.items() if one == call.name), None)
    arguments_key = next((key for key, one in value.items() if one == call.arguments), None)
    id_key = next((key for key, one in value.items() if one == call.id), None)
    if name_key is not None and arguments_key is not None:
        return JsonCall(name_key=name_key, arguments_key=arguments_key, id_key=id_key)
    for key, inner in value.items():
        body = _json_call(inner, call)
        if body is not None and body.wrapper_key is None:
            return JsonCall(
                name_key=body.name_key,
                arguments_key=body.arguments_key,
                id_key=id_key,
                wrapper_key=key,
            )
    return None


def _find_named(text: str, calls: Sequence[ProbeCall]) -> Found | None:
    bodies: list[NamedCall] = []
    spans: list[Span] = []
    at = 0
    for number, call in enumerate(calls):
        start = text.find(call.name, at)
        after = start + len(call.name)
        found = next(
            (
                (begin, end)
                for begin, end, value in _json_values(text)
                if begin >= after and value == call.arguments
            ),
            None,
        )
        if start < 0 or found is None:
            return None
        bodies.append(_named_call(text[after : found[0]], call, number))
        at = found[1]
        spans.append((start, at))
    return (bodies[0], spans) if all(body == bodies[0] for body in bodies) else None


def _named_call(middle: str, call: ProbeCall, number: int) -> NamedCall:
    for written in (call.id, f"{number}"):
        id_start, found, after_name = middle.partition(written)
        if found and (written == call.id or id_start == ":"):
            return NamedCall(after_name=after_name, id_start=id_start)
    return NamedCall(after_name=middle)


def _find_tagged(text: str, calls: Sequence[ProbeCall]) -> Found | None:
    bodies: list[TaggedCall] = []
    spans: list[Span] = []
    at = 0
    for call in calls:
        wanted = [call.name, KEYS[0], call.values[0], KEYS[1], str(call.values[1])]
        places: list[Span] = []
        for one in wanted:
            start = text.find(one, at)
            if start < 0:
                return None
            at = start + len(one)
            places.append((start, at))
        gaps = [text[one[1] : other[0]] for one, other in pairwise(places)]
        body = _tagged_call(gaps, text[at:])
        if body is None:
            return None
        at += len(body.argument.end)
        bodies.append(body)
        spans.append((places[0][0], at))
    return (bodies[0], spans) if all(body == bodies[0] for body in bodies) else None


def _tagged_call(gaps: Sequence[str], after: str) -> TaggedCall | None:
    """Returns the tags of arguments. `gaps` stand between the name, a key, its value, another key
    and its value, and `after` behind that."""
    before_first, after_key, between, after_other_key = gaps
    key_start = before_first[before_first.rfind("<") :] if "<" in before_first else ""
    if not key_start or after_key != after_other_key or not between.endswith(key_start):
        return None
    between = between.removesuffix(key_start)
    end = between[: between.rfind(">") + 1]
    if not end or not after.startswith(end):
        return None
    return TaggedCall(
        after_name=before_first.removesuffix(key_start),
        argument=Around(start=key_start, end=end),
        after_key=after_key,
        between=between.removeprefix(end),
    )
