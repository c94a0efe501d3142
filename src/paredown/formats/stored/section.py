"""What can be said of a field of config.json's quantization_config that cannot be used."""

from collections.abc import Collection, Mapping

from paredown.errors import CheckpointError, UnsupportedError


def unsupported(field: str, value: object, known: str = "") -> UnsupportedError:
    """The error for a valid field that is not supported; `known` says what is."""
    return UnsupportedError(
        f"quantization_config.{field} asks for something that cannot be read here",
        seen=_shorten(value),
        remedy=f"{known} Use another compressed form of this model, or the original.".strip(),
    )


def damaged(field: str, value: object) -> CheckpointError:
    return CheckpointError(
        f"quantization_config.{field} is not valid",
        seen=_shorten(value),
        remedy="Download config.json again.",
    )


def refuse_others(fields: Mapping[str, object], known: Collection[str], where: str = "") -> None:
    """Fields that we do not read must say nothing. Raises UnsupportedError."""
    for name, value in fields.items():
        if name not in known and value not in (None, False, {}, []):
            raise unsupported(f"{where}{name}", value)


def check_any_codes(tensor_names: Collection[str], suffix: str, method: str) -> None:
    """Raises CheckpointError where a format that leaves it to the files which modules are quantized
    finds none."""
    if not any(name.endswith(f".{suffix}") for name in tensor_names):
        raise CheckpointError(
            f"config.json says that the model is quantized by {method}, but no tensor is",
            seen=f"{len(tensor_names)} tensors, none a {suffix}",
            remedy="Use the config.json that belongs to these weights, or download them again.",
        )


def check_same_method(fields: Mapping[str, object], method: str) -> None:
    """GPTQModel says twice which method it was, and from version 7.7 on in a field of its own.
    Raises UnsupportedError when that is another."""
    if fields.get("method", method) != method:
        raise unsupported("method", fields["method"], f"quant_method says {method}.")


def whole_number(fields: Mapping[str, object], field: str, default: int) -> int:
    """Raises CheckpointError for anything else (True is no number)."""
    value = fields.get(field, default)
    if type(value) is not int:
        raise damaged(field, value)
    return value


def flag(fields: Mapping[str, object], field: str, default: bool) -> bool:
    value = fields.get(field, default)
    if not isinstance(value, bool):
        raise damaged(field, value)
    return value


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "..."
