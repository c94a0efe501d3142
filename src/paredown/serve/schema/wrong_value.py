"""Says which value of a body is wrong, where it stands, what it should be and what it is.

A field that takes several kinds of values has an error for each of them. The kind that was meant is
the one whose check came furthest, and its error is told.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from paredown.serve.errors import HttpError
from paredown.shown import quoted, shown

# The limits of a client's field name and value in messages.
MAX_NAME_CHARS = 64
MAX_VALUE_CHARS = 80
_KINDS = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "list_type": "a list",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
}
_LITERAL = "literal_error"
# Fields whose integers are token ids.
_OF_TOKEN_IDS = frozenset({"prompt", "input", "stop_token_ids", "allowed_token_ids", "bad_words"})
_TOKEN_ID = "a token id, which is an integer"
Place = tuple[str | int, ...]


def wrong_value(error: ValidationError, body: object, unsupported: Iterable[str]) -> HttpError:
    """Returns the 400 for the first field at fault. `unsupported` names known fields that are not
    served."""
    errors = error.errors(include_url=False, include_input=False)
    # A field that is not served at all is told before wrong values of others.
    first = next((one for one in errors if _is_unserved(one)), errors[0])
    if not first["loc"] and first["type"] == "too_many_fields":
        return HttpError(400, first["msg"], code="invalid_value")
    if not first["loc"]:
        return HttpError(400, "the body must be a JSON object", code="invalid_type")
    field = first["loc"][0]
    found = [(_place(one, body), one) for one in errors if one["loc"][0] == field]
    furthest = max(_progress(place) for place, _ in found)
    place, chosen = next(pair for pair in found if _progress(pair[0]) == furthest)
    path, param = ".".join(map(_name, place)), _name(field)
    if chosen["type"] == "extra_forbidden":
        known = place[-1] in set(unsupported)
        why = "is not supported; leave it out" if known else "is not known"
        message = f"{path}: this field {why}"
        return HttpError(400, message, param=param, code="unsupported_parameter")
    if chosen["type"] == "missing":
        return HttpError(400, f"{path}: is missing", param=param, code="invalid_value")
    wanted = _wanted([one for other, one in found if other == place], field)
    seen = _seen(_at(place, body))
    return HttpError(400, f"{path}: {wanted} (saw: {seen})", param=param, code="invalid_value")


def _is_unserved(error: ErrorDetails) -> bool:
    return error["type"] == "extra_forbidden" and len(error["loc"]) == 1


def _place(error: ErrorDetails, body: object) -> Place:
    """Returns where the value stands in the body. The names of a union's kinds, which are in the
    error's place too, are left out."""
    place = list[str | int]()
    value: Any = body
    for part in error["loc"]:
        is_index = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if is_index or (isinstance(value, dict) and part in value):
            value = value[part]
            place.append(part)
    if error["type"] == "missing":
        place.append(error["loc"][-1])
    return tuple(place) or error["loc"][:1]


def _progress(place: Place) -> tuple[list[int], int]:
    """Returns how far the check came: in lists, then in depth."""
    return [part for part in place if isinstance(part, int)], len(place)


def _wanted(errors: Sequence[ErrorDetails], field: str | int) -> str:
    """Returns what a value should be; where kinds of a union all fail at it, any of them."""
    kinds = [_kind(one, field) for one in errors if one["type"] in (*_KINDS, _LITERAL)]
    if not kinds or len(kinds) < len(errors):
        return errors[0]["msg"][:1].lower() + errors[0]["msg"][1:]
    listed = list(dict.fromkeys(kinds))
    return f"should be {' or '.join(listed)}"


def _kind(error: ErrorDetails, field: str | int) -> str:
    if error["type"] == _LITERAL:
        expected = str(error["ctx"]["expected"])
        return {"True": "true", "False": "false"}.get(expected, expected)
    kind = _KINDS[error["type"]]
    return _TOKEN_ID if kind == "an integer" and field in _OF_TOKEN_IDS else kind


def _at(place: Place, body: object) -> object:
    value: Any = body
    for part in place:
        value = value.get(part) if isinstance(value, dict) else value[part]
    return value


def _seen(value: object) -> str:
    """Returns a value as JSON has it, cut, with its kind where the value alone does not show it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value, MAX_VALUE_CHARS)
    if isinstance(value, list):
        return f"a list of {len(value):,}" if value else "an empty list"
    if isinstance(value, dict):
        return f"an object with {', '.join(map(_name, [*value][:4]))}" if value else "{}"
    return shown(value, MAX_VALUE_CHARS)


def _name(part: str | int) -> str:
    name = str(part)
    return name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}..."
