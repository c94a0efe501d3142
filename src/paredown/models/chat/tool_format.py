"""ToolFormat: how a model writes calls of tools, as its chat template shows it.

A turn may hold one section of calls, or several. A section is what stands around all calls, what
stands around each call, and one of three forms of a call:

    JsonCall    {"name": "add", "arguments": {"a": 1}}
    NamedCall   add[ARGS]{"a": 1}, with the name before the JSON of its arguments
    TaggedCall  add><parameter=a>1</parameter>, with each argument in a tag of its own
"""

from dataclasses import dataclass, field, replace
from typing import Literal

ArgumentsAs = Literal["object", "text"]
Kind = Literal["json", "tag with JSON", "tag with name and JSON", "tag with tagged arguments"]
PYTHON_TAG = "<|python_tag|>"


@dataclass(frozen=True, kw_only=True)
class Around:
    """Markers before and behind something. Models vary their whitespace."""

    start: str = ""
    end: str = ""

    @property
    def start_lines(self) -> tuple[str, ...]:
        return lines_of(self.start)

    @property
    def end_lines(self) -> tuple[str, ...]:
        return lines_of(self.end)


@dataclass(frozen=True, kw_only=True)
class JsonCall:
    """A call is a JSON object with its name and arguments under these keys, and its id under
    `id_key` where that is not None. `wrapper_key` is the key of an object that holds name and
    arguments. With `is_array`, all calls of a section are one JSON array."""

    name_key: str = "name"
    arguments_key: str = "arguments"
    id_key: str | None = None
    wrapper_key: str | None = None
    is_array: bool = False


@dataclass(frozen=True, kw_only=True)
class NamedCall:
    """A call is its name, `after_name` and the JSON object of its arguments. Where `id_start` is
    not empty, it and the call's id stand behind the name; behind a colon, ids are the numbers of
    the calls."""

    after_name: str
    id_start: str = ""


@dataclass(frozen=True, kw_only=True)
class TaggedCall:
    """A call is its name, `after_name` and its arguments: each a key between `argument.start` and
    `after_key`, and a value up to `argument.end`. `between` stands between arguments. Texts stand
    as they are, other values as JSON."""

    after_name: str
    argument: Around
    after_key: str
    between: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolFormat:
    """`section` stands around all calls, `call` around each, and `between` between two of them.
    `arguments_as` is how the template takes the arguments of earlier calls. Without `is_parallel`
    the template writes one call per turn. `other_start` may stand before a section too."""

    body: JsonCall | NamedCall | TaggedCall
    section: Around = field(default_factory=Around)
    call: Around = field(default_factory=Around)
    between: str = ""
    arguments_as: ArgumentsAs = "object"
    is_parallel: bool = True
    other_start: str = ""

    @property
    def kind(self) -> Kind:
        if isinstance(self.body, TaggedCall):
            return "tag with tagged arguments"
        if isinstance(self.body, NamedCall):
            return "tag with name and JSON"
        return "tag with JSON" if self.call.end_lines or self.section.end_lines else "json"

    @property
    def is_bare(self) -> bool:
        """Returns whether nothing but the JSON itself says that a call begins."""
        return not (self.section.start_lines or self.call.start_lines)

    @property
    def numbers_calls(self) -> bool:
        """Returns whether the template writes ids in place of names, with the call's number."""
        return isinstance(self.body, NamedCall) and self.body.id_start == ":"

    @property
    def triggers(self) -> tuple[str, ...]:
        """Returns the texts that may begin a section. Models forget an outer tag: the last line of
        a call's start is enough."""
        call = self.call.start_lines
        found = dict.fromkeys(
            [*self.section.start_lines[:1], *call[:1], *call[-1:], *lines_of(self.other_start)]
        )
        return tuple(
            one
            for one in found
            if not any(one != other and one.startswith(other) for other in found)
        )

    def without_before(self, mark: str) -> "ToolFormat":
        """Returns the format without `mark`, and what precedes it, in what stands before calls."""
        section, call = (
            replace(
                one,
                start=one.start.rpartition(mark)[2].lstrip() if mark in one.start else one.start,
            )
            for one in (self.section, self.call)
        )
        return replace(self, section=section, call=call)

    @property
    def markers(self) -> tuple[str, ...]:
        """Returns all texts that the parser looks for. Those that are special tokens must not be
        dropped from a model's text."""
        texts = [self.section.start, self.section.end, self.call.start, self.call.end]
        texts += [self.other_start, self.between]
        if isinstance(self.body, NamedCall | TaggedCall):
            texts.append(self.body.after_name)
        if isinstance(self.body, NamedCall):
            texts.append(self.body.id_start)
        if isinstance(self.body, TaggedCall):
            texts += [self.body.argument.start, self.body.argument.end, self.body.after_key]
        return tuple(texts)


def lines_of(marker: str) -> tuple[str, ...]:
    """Returns the lines of a marker without the whitespace around them."""
    return tuple(line.strip() for line in marker.split("\n") if line.strip())
