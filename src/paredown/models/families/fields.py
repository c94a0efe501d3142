"""Fields: reads a checkpoint's config.json field by field and checks each value."""

from collections.abc import Mapping
from typing import Final

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.read_fields import ReadFields
from paredown.shown import quoted, shown_list
from paredown.spec.mlp import Activation

# The largest integer of the native core.
MAX_INTEGER = 2**31 - 1
MAX_LAYERS = 10_000
ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


class _Required:
    """The type of REQUIRED, so that None stays a possible default."""


REQUIRED: Final = _Required()


class Fields:
    """Typed access to a config, which records what was read. An absent field returns `default`;
    without one it is an error."""

    def __init__(self, config: Mapping[str, object], where: str = "config.json") -> None:
        self.config = config if isinstance(config, ReadFields) else ReadFields(config)
        self.where = where

    def overlaid(self, changes: Mapping[str, object]) -> "Fields":
        """Returns the same fields with some replaced by `changes`."""
        return Fields(self.config.overlaid(changes), self.where)

    def pass_over(self, *names: str) -> None:
        """Marks these fields as read: they have no effect beside the fields that were read."""
        for name in names:
            self.config.pass_over(name)

    def integer(self, name: str, default: int | _Required = REQUIRED, *, minimum: int = 1) -> int:
        value = self.config.get(name, default)
        if value is None or value is REQUIRED:
            raise self.missing(name)
        if type(value) is not int or not minimum <= value <= MAX_INTEGER:
            raise self.wrong(name, f"an integer from {minimum} to {MAX_INTEGER}")
        return value

    def num_layers(self, name: str) -> int:
        """Reads the number of layers. More than any model has is an error, because a spec lists
        them all."""
        found = self.integer(name)
        if found > MAX_LAYERS:
            raise self.wrong(name, f"an integer from 1 to {MAX_LAYERS}")
        return found

    def optional_integer(self, name: str, default: int | None = None) -> int | None:
        """Reads an integer. None is returned only where the field is null, or absent with the
        default None."""
        value = self.config.get(name, default)
        return None if value is None else self.integer(name, default=default or REQUIRED)

    def number(self, name: str, default: float | _Required = REQUIRED) -> float:
        """Reads a positive number, such as an epsilon, a base or a factor."""
        value = self.config.get(name, default)
        if value is None or value is REQUIRED:
            raise self.missing(name)
        if type(value) not in (int, float) or not 0 < float(str(value)) < float("inf"):
            raise self.wrong(name, "a finite number above zero")
        return float(str(value))

    def optional_number(self, name: str, default: float | None = None) -> float | None:
        """Reads a number. None is returned only where the field is null, or absent with the default
        None."""
        value = self.config.get(name, default)
        return None if value is None else self.number(name, default=default or REQUIRED)

    def flag(self, name: str, default: bool) -> bool:
        value = self.config.get(name, default)
        if type(value) is not bool:
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, default: str | _Required = REQUIRED) -> str:
        value = self.config.get(name, default)
        if value is None or value is REQUIRED:
            raise self.missing(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def activation(self, name: str, default: str) -> Activation:
        value = self.text(name, default)
        if value not in ACTIVATIONS:
            raise UnsupportedError(
                f"{self.where} asks for an unknown activation in {name!r}",
                seen=value,
                remedy=f"Known activations: {', '.join(ACTIVATIONS)}.",
            )
        return ACTIVATIONS[value]

    def must_be(self, name: str, supported: object) -> None:
        """Refuses a variant of the architecture that the spec cannot express."""
        value = self.config.get(name, supported)
        if value != supported:
            raise UnsupportedError(
                f"{self.where} sets {name!r} to a value that is not supported",
                seen=value,
                remedy=f"Only {name} = {supported} can be run; choose another checkpoint.",
            )

    def must_be_off(self, name: str) -> None:
        """Refuses a variant that a flag switches on; null counts as false."""
        if self.config.get(name) is not None:
            self.must_be(name, False)

    def missing(self, name: str) -> CheckpointError:
        return CheckpointError(
            f"{self.where} lacks the field {name!r}",
            seen=f"fields {shown_list(sorted(self.config), 40) or 'none'}",
            remedy="Download the checkpoint again, or add the field.",
        )

    def wrong(self, name: str, expected: str) -> CheckpointError:
        return CheckpointError(
            f"{self.where} holds a bad value for {name!r}: expected {expected}",
            seen=quoted(self.config.get(name)),
            remedy="Correct the field, or download the checkpoint again.",
        )


def even_heads(hidden_size: int, num_heads: int) -> int:
    """Returns the columns per head where a config leaves `head_dim` to be derived."""
    if hidden_size % num_heads:
        raise CheckpointError(
            "config.json: the hidden size is not a multiple of the number of attention heads",
            seen=f"hidden size {hidden_size}, {num_heads} heads",
            remedy="Correct the fields, or download the checkpoint again.",
        )
    return hidden_size // num_heads
