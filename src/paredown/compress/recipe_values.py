"""Checks the values of a recipe's document against the types of the fields that they fill."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_args, get_type_hints

import pydantic

from paredown.errors import ConfigError
from paredown.shown import quoted

Made = TypeVar("Made")


def configured(method: type[Made], options: Mapping[str, object], where: str) -> Made:
    """Returns the method with these options, each checked against the type of its field."""
    hints = get_type_hints(method)
    known = tuple(field.name for field in fields(method))  # type: ignore[arg-type]
    refuse_unknown(options, known, where)
    return method(
        **{
            name: checked_value(value, hints[name], f"{where}, {name}")
            for name, value in options.items()
        }
    )


def optional(parts: Mapping[str, object], name: str, kind: Any) -> Any:
    return checked_value(parts[name], kind, name) if name in parts else None


def checked_value(value: object, kind: Any, where: str) -> Any:
    """Returns `value` if it has the type `kind`, else raises an error."""
    try:
        return pydantic.TypeAdapter(kind).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        expected = ", ".join(map(str, get_args(kind))) or getattr(kind, "__name__", str(kind))
        raise wrong(where, value, expected) from error


def mapping(document: object, where: str) -> Mapping[str, object]:
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise wrong(where, document, "keys and values")
    return document


def refuse_unknown(parts: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    unknown = [key for key in parts if key not in known]
    if unknown:
        raise ConfigError(
            f"{where} has an unknown key",
            seen=", ".join(unknown),
            remedy=f"Known keys: {', '.join(known) or 'none'}.",
        )


def wrong(where: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{where} is not valid", seen=quoted(value), remedy=f"Give {expected}.")
