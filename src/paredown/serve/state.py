"""ServerState: what every endpoint shares."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from paredown.engine.prompt import PromptTokenizer
from paredown.engine.worker import Worker
from paredown.serve.errors import HttpError
from paredown.serve.intake import Intake
from paredown.serve.token_parts import Parts, TokenParts


class ServerTokenizer(PromptTokenizer, Protocol):
    """What the HTTP edge needs of a tokenizer."""

    @property
    def has_chat_template(self) -> bool: ...

    def decode(self, token_ids: list[int], /) -> str: ...


@dataclass(frozen=True, kw_only=True)
class ServerState:
    model_name: str
    max_positions: int
    tokenizer: ServerTokenizer
    worker: Worker
    intake: Intake = field(default_factory=Intake)
    # By the format that writes them.
    token_parts: dict[str, TokenParts] = field(default_factory=dict)
    created_s: int = field(default_factory=lambda: int(time.time()))

    def check_model(self, name: str | None) -> None:
        """Raises HttpError 404 when a request names another model than the one that is here."""
        if name is not None and name != self.model_name:
            raise HttpError(
                404,
                f"there is no model {name!r} here; this server has {self.model_name!r}",
                param="model",
                code="model_not_found",
            )

    def token_parts_of(self, name: str, write: Callable[[str | bytes], Parts]) -> TokenParts:
        """Those of the format of this name, one table for all its answers."""
        if name not in self.token_parts:
            self.token_parts[name] = TokenParts(self.tokenizer, write)
        return self.token_parts[name]
