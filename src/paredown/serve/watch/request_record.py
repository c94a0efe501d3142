"""RequestRecord: what the server notes of one HTTP request while it answers."""

import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.types import Scope

ID_HEADER = "X-Request-Id"
MAX_ID_CHARS = 64
_SCOPE_KEY = "paredown.request"
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._:@/+=-]")


@dataclass(kw_only=True, slots=True)
class RequestRecord:
    """Times are `time.perf_counter()` seconds. `num_prompt_tokens` counts each prompt once,
    `num_generated_tokens` all answers. `key_name` names the key that it came with."""

    id: str
    start_s: float = field(default_factory=time.perf_counter)
    key_name: str = ""
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    first_token_s: float | None = None

    @classmethod
    def of(cls, scope: Scope) -> "RequestRecord":
        """Returns the record of the request with this scope (`request.scope`), which is made where
        there is none yet."""
        found: RequestRecord | None = scope.get(_SCOPE_KEY)
        if found is None:
            found = scope[_SCOPE_KEY] = cls(id=request_id(scope["headers"]))
        return found

    def note_prompt(self, num_tokens: int) -> None:
        self.num_prompt_tokens += num_tokens

    def note_generated(self, num_tokens: int) -> None:
        """Counts tokens of an answer, as they come."""
        if num_tokens and self.first_token_s is None:
            self.first_token_s = time.perf_counter()
        self.num_generated_tokens += num_tokens


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Returns the client's own id, cleaned and cut, or a new one."""
    wanted = ID_HEADER.lower().encode()
    sent = next((value for name, value in headers if name == wanted), b"")
    cleaned = _NOT_IN_IDS.sub("", sent[: 4 * MAX_ID_CHARS].decode("latin-1"))[:MAX_ID_CHARS]
    return cleaned or f"req_{secrets.token_hex(12)}"
