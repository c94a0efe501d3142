"""Parses untrusted JSON with limits. Floor 0: imports nothing.

Python's parser raises RecursionError for deep nesting and accepts nesting that breaks later walks.
For an integer of more than 4,300 digits its error names an interpreter switch. Infinity and NaN are
accepted as in Python: real configurations have them in unused fields, and used fields are
range-checked.
"""

import json

# Far more than any file of a model needs.
MAX_DEPTH = 64


class JsonTextError(ValueError):
    """One line that says what is wrong, and where."""


def parse_json(data: bytes | str) -> object:
    """Returns the value of a JSON text. Raises JsonTextError."""
    try:
        value: object = json.loads(data)
    except RecursionError as error:
        raise _too_deep() from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise JsonTextError(f"{where}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise JsonTextError(f"byte {error.start} is not UTF-8") from error
    except ValueError as error:
        raise JsonTextError("an integer has too many digits") from error
    # Most files have too few brackets to be deep.
    if isinstance(data, str):
        num_brackets = data.count("[") + data.count("{")
    else:
        num_brackets = data.count(b"[") + data.count(b"{")
    if num_brackets > MAX_DEPTH:
        _check_depth(value)
    return value


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        children = (
            child
            for one in level
            for child in (one.values() if isinstance(one, dict) else one)  # type: ignore[attr-defined]
        )
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> JsonTextError:
    return JsonTextError(f"values are nested more than {MAX_DEPTH} deep")
