"""OtherNames: by which names beside its own a model may be asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

from paredown.errors import ConfigError
from paredown.serve.errors import MAX_NAME_CHARS, HttpError
from paredown.shown import quoted, shown, shown_list

# A request names its model in a Label of so many characters.
_MAX_ALIAS_CHARS = 256
_MAX_ALIASES = 64


@dataclass(frozen=True, kw_only=True)
class OtherNames:
    """`aliases` are listed beside the model's own name; `any_name` takes every other, too, for
    clients whose model cannot be set. Raises ConfigError."""

    aliases: tuple[str, ...] = ()
    any_name: bool = False

    def __post_init__(self) -> None:
        for one in self.aliases:
            if not 0 < len(one) <= _MAX_ALIAS_CHARS or shown(one, _MAX_ALIAS_CHARS) != one:
                raise ConfigError(
                    "--alias is not a name for a model",
                    seen=quoted(one, MAX_NAME_CHARS),
                    remedy=f"Use 1 to {_MAX_ALIAS_CHARS} printable characters.",
                )
        if len(self.aliases) > _MAX_ALIASES:
            raise ConfigError(
                "too many names for one model",
                seen=f"{len(self.aliases)} times --alias",
                remedy=f"Use at most {_MAX_ALIASES}, or --any-model-name.",
            )

    @classmethod
    def of(cls, own: str, aliases: Sequence[str], *, any_name: bool = False) -> "OtherNames":
        """Returns the names without repetitions and without the model's `own`."""
        names = tuple(one for one in dict.fromkeys(aliases) if one != own)
        return cls(aliases=names, any_name=any_name)

    def check(self, asked: str | None, own: str) -> None:
        """Raises HttpError 404 when a request names another model than this one."""
        if asked is None or asked == own or self.any_name or asked in self.aliases:
            return
        names = shown_list([own, *self.aliases], max_items=4)
        raise HttpError(
            404,
            f"there is no model {quoted(asked, MAX_NAME_CHARS)} here; this server has {names}",
            param="model",
            code="model_not_found",
        )
