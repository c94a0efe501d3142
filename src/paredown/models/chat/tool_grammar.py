"""Writes the grammar of a turn that must call tools, or say a text of a given form, in llguidance's
Lark.

What a grammar lets through, the parser of the same format reads as calls: their names are known
and their arguments follow the tools' schemas. Markers that are control tokens are named by id,
since no text spells them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paredown.models.chat.reasoning_format import ReasoningFormat
from paredown.models.chat.tool_format import JsonCall, NamedCall, TaggedCall, ToolFormat

# More calls than a turn needs; a small model may begin one call after another without end.
MAX_CALLS = 16
# How json.dumps writes, as templates do: blanks without end are no JSON here.
_SEPARATORS = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
_DEFINITIONS = ("$defs", "definitions")
_ANY_TEXT = r"/(?s:.*)/"


@dataclass(frozen=True, kw_only=True)
class ToolGrammar:
    """The grammar of calls in `tool_format`, which may be None where there are none. `control_ids`
    has the ids of control tokens by their texts. Turns may begin with `reasoning`, and do where the
    prompt `opens_reasoning`."""

    tool_format: ToolFormat | None
    control_ids: Mapping[str, int] = field(default_factory=dict)
    reasoning: ReasoningFormat | None = None
    opens_reasoning: bool = False

    def text(
        self,
        tools: Sequence[Mapping[str, object]],
        *,
        name: str | None = None,
        parallel: bool = True,
        answer: str = "",
    ) -> str:
        """Returns the grammar of a turn that calls the tool `name` once, or any of `tools`, which
        are objects {"type": "function", "function": {...}}: once, or up to MAX_CALLS times if
        `parallel` and the template writes so many. The tool `name` must be one of them. A turn may
        be an `answer`, a rule's body in Lark, in its place; without tools it is nothing else."""
        if self.tool_format is None or not tools:
            rules = [f"start: {self._lead()}answer", f"answer: {answer}", *self._reasoning_rules()]
            return "\n".join(rules) + "\n"
        functions = [tool["function"] for tool in tools]
        chosen = [
            one
            for one in functions
            if isinstance(one, Mapping) and (name is None or one["name"] == name)
        ]
        assert chosen
        calls = "(section | answer)" if answer else "section"
        rules = [f"start: {self._lead()}{calls}"]
        rules += [f"answer: {answer}"] if answer else []
        rules.append(self._section(self.tool_format, parallel and name is None))
        rules.append("call: " + " | ".join(f"call_{i}" for i in range(len(chosen))))
        for i, function in enumerate(chosen):
            rules += self._call(self.tool_format.body, i, function)
        rules += self._reasoning_rules()
        return "\n".join(rules) + "\n"

    def _lead(self) -> str:
        if self.reasoning is None:
            return ""
        return "thought " if self.opens_reasoning else "thought? "

    def _reasoning_rules(self) -> list[str]:
        """Returns the rules of the text up to the end of reasoning, and of the blanks behind it."""
        if self.reasoning is None:
            return []
        start = "" if self.opens_reasoning else self._literal(self.reasoning.start) + " "
        if (end := self.reasoning.end) in self.control_ids:
            return [
                f"thought: {start}{_ANY_TEXT} {self._literal(end)} BLANKS",
                r"BLANKS: /\s{0,8}/",
            ]
        return [
            f"thought: {start}until_end BLANKS",
            f"until_end[suffix={_quoted(end)}]: {_ANY_TEXT}",
            r"BLANKS: /\s{0,8}/",
        ]

    def _section(self, form: ToolFormat, is_parallel: bool) -> str:
        more = f"{{0,{MAX_CALLS - 1}}}" if is_parallel and form.is_parallel else ""
        if isinstance(form.body, JsonCall) and form.body.is_array:
            rest = f'(", " call){more}' if more else ""
            return self._rule(
                "section", form.section.start + "[", f"call {rest}", "]" + form.section.end
            )
        between = self._literal(form.call.end + form.between + form.call.start)
        rest = f"({between} call){more}" if more else ""
        return self._rule(
            "section",
            form.section.start + form.call.start,
            f"call {rest}",
            form.call.end + form.section.end,
        )

    def _call(
        self,
        body: JsonCall | NamedCall | TaggedCall,
        number: int,
        function: Mapping[str, object],
    ) -> list[str]:
        """Returns the rules of a call of one tool."""
        name = str(function["name"])
        schema = _object_schema(function.get("parameters"))
        is_lenient = function.get("strict") is not True
        if isinstance(body, TaggedCall):
            return self._tagged_call(number, body, name, schema, is_lenient)
        arguments = f"arguments_{number}"
        rules = [f"{arguments}: %json {_json_rule(schema, is_lenient)}"]
        if isinstance(body, NamedCall):
            id_pattern = "/[0-9]{1,3}/" if body.id_start == ":" else "/[a-zA-Z0-9]{9}/"
            id_ = f"{self._literal(body.id_start)} {id_pattern} " if body.id_start else ""
            after = self._literal(body.after_name)
            return [f"call_{number}: {self._literal(name)} {id_}{after} {arguments}", *rules]
        return [self._json_call(number, body, name), *rules]

    def _json_call(self, number: int, body: JsonCall, name: str) -> str:
        id_ = "" if body.id_key is None else f'{_json(body.id_key)}: "'
        inner = f"{_json(body.name_key)}: {_json(name)}, {_json(body.arguments_key)}: "
        if body.wrapper_key is None:
            before, after = "{" + inner, "}"
            if id_:
                return (
                    f"call_{number}: {_quoted(before)} arguments_{number} {_quoted(', ' + id_)} "
                    f'/[a-zA-Z0-9]{{9}}/ "\\"}}"'
                )
            return f"call_{number}: {_quoted(before)} arguments_{number} {_quoted(after)}"
        wrapped = f"{_json(body.wrapper_key)}: {{{inner}"
        if not id_:
            return f"call_{number}: {_quoted('{' + wrapped)} arguments_{number} " + '"}}"'
        return (
            f"call_{number}: {_quoted('{' + id_)} /[a-zA-Z0-9]{{9}}/ "
            f"{_quoted(chr(34) + ', ' + wrapped)} arguments_{number} " + '"}}"'
        )

    def _tagged_call(
        self, number: int, body: TaggedCall, name: str, schema: Mapping[str, object], lenient: bool
    ) -> list[str]:
        """Returns the rules of a call whose arguments have a tag each. They come in the order of
        the schema; those that are not required may be missing."""
        properties = schema.get("properties")
        required = schema.get("required")
        listed = properties if isinstance(properties, Mapping) else {}
        needed = required if isinstance(required, list) else []
        # What stands between arguments stands before each: the name's end has it too.
        after_name = body.after_name.removesuffix(body.between)
        parts = [self._literal(name + after_name)]
        rules: list[str] = []
        for i, (key, part) in enumerate(listed.items()):
            argument = f"argument_{number}_{i}"
            parts.append(argument if key in needed else f"{argument}?")
            start = self._literal(body.between + body.argument.start + key + body.after_key)
            value = f"value_{number}_{i}"
            rules += self._value_rules(body, argument, value, start, _within(part, schema), lenient)
        return [f"call_{number}: {' '.join(parts)}", *rules]

    def _value_rules(
        self,
        body: TaggedCall,
        argument: str,
        value: str,
        start: str,
        schema: Mapping[str, object],
        lenient: bool,
    ) -> list[str]:
        end = body.argument.end
        match schema:
            case {"enum": [*choices]} if choices and all(isinstance(one, str) for one in choices):
                options = " | ".join(_quoted(str(one)) for one in choices)
                return [f"{argument}: {start} ({options}) {self._literal(end)}"]
            case {"type": "string"} if any(token in end for token in self.control_ids):
                return [f"{argument}: {start} {_ANY_TEXT} {self._literal(end.lstrip())}"]
            case {"type": "string"}:
                return [
                    f"{argument}: {start} {value}",
                    f"{value}[suffix={_quoted(end)}]: {_ANY_TEXT}",
                ]
        return [
            f"{argument}: {start} {value} {self._literal(end)}",
            f"{value}: %json {_json_rule(schema, lenient)}",
        ]

    def _rule(self, name: str, before: str, middle: str, after: str) -> str:
        parts = [self._literal(before), middle.strip(), self._literal(after)]
        return f"{name}: " + " ".join(part for part in parts if part)

    def _literal(self, text: str) -> str:
        """Returns a marker as Lark has it: texts in quotes, control tokens by id."""
        if not text:
            return ""
        longest_first = sorted(self.control_ids, key=lambda token: -len(token))
        special = "|".join(map(re.escape, filter(None, longest_first)))
        parts = re.split(f"({special})", text) if special else [text]
        return " ".join(
            f"<[{self.control_ids[part]}]>" if part in self.control_ids else _quoted(part)
            for part in parts
            if part
        )


def _object_schema(parameters: object) -> Mapping[str, object]:
    """Returns the schema of a call's arguments: an object, with no other keys than those that the
    tool names, unless it says more."""
    schema = dict(parameters) if isinstance(parameters, Mapping) else {}
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    if not any(key in schema for key in ("anyOf", "oneOf", "allOf", "$ref", "patternProperties")):
        schema.setdefault("additionalProperties", False)
    return schema


def _within(part: object, root: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the schema of an argument with the definitions that it may refer to."""
    schema = dict(part) if isinstance(part, Mapping) else {}
    return {**{key: root[key] for key in _DEFINITIONS if key in root}, **schema}


def _json_rule(schema: Mapping[str, object], is_lenient: bool) -> str:
    """Returns a schema for `%json`. Keywords that are not supported are errors for strict tools,
    and no bounds for others."""
    options = {**_SEPARATORS, "lenient": is_lenient}
    return json.dumps({"x-guidance": options, **schema})


def _quoted(text: str) -> str:
    return json.dumps(text)


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
