"""Writes calls as a format has them: what a model is expected to write."""

import json
from collections.abc import Mapping, Sequence

from paredown.models.chat.tool_format import JsonCall, NamedCall, ToolFormat

Call = tuple[str, Mapping[str, object]]


def write_calls(form: ToolFormat, calls: Sequence[Call]) -> str:
    """Returns the text of `calls`, each a name and arguments. Ids are numbers of nine digits, or
    those that the format makes of a call's number."""
    if isinstance(form.body, JsonCall) and form.body.is_array:
        listed = ", ".join(_write_call(form, call, i) for i, call in enumerate(calls))
        return form.section.start + f"[{listed}]" + form.section.end
    written = [
        form.call.start + _write_call(form, call, i) + form.call.end for i, call in enumerate(calls)
    ]
    return form.section.start + form.between.join(written) + form.section.end


def _write_call(form: ToolFormat, call: Call, number: int) -> str:
    name, arguments = call
    body = form.body
    if isinstance(body, JsonCall):
        id_ = {} if body.id_key is None else {body.id_key: f"{number:09}"}
        function = {body.name_key: name, body.arguments_key: arguments}
        if body.wrapper_key is None:
            return _json({**function, **id_})
        return _json({**id_, body.wrapper_key: function})
    if isinstance(body, NamedCall):
        return name + _written_id(body, number) + body.after_name + _json(arguments)
    # What stands between arguments stands before the first as well.
    tagged = [
        body.between
        + body.argument.start
        + key
        + body.after_key
        + _value(value)
        + body.argument.end
        for key, value in arguments.items()
    ]
    return name + body.after_name.removesuffix(body.between) + "".join(tagged)


def _written_id(body: NamedCall, number: int) -> str:
    if not body.id_start:
        return ""
    return body.id_start + (str(number) if body.id_start == ":" else f"{number:09}")


def _value(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
