"""RequestLine: the one line that the log has of a request. It holds no text of a client but the
path and the id, escaped and cut, and none of the model."""

import json
from dataclasses import dataclass

from paredown.shown import shown

MAX_PATH_CHARS = 100


@dataclass(frozen=True, kw_only=True)
class RequestLine:
    """`status` is 0 where no answer was begun; an answer that is not whole was cut off, usually
    because the client hung up. The query of a URL is left out, since some put keys there."""

    request_id: str
    method: str
    path: str
    status: int
    is_whole: bool
    num_prompt_tokens: int
    num_generated_tokens: int
    time_to_first_token_s: float | None
    duration_s: float
    key_name: str

    def as_json(self, time: str) -> str:
        fields: dict[str, object] = {
            "time": time,
            "id": self.request_id,
            "method": shown(self.method, MAX_PATH_CHARS),
            "path": shown(self.path, MAX_PATH_CHARS),
            "status": self.status,
            "duration_s": round(self.duration_s, 6),
        }
        if not self.is_whole:
            fields["cut_off"] = True
        if self.num_prompt_tokens:
            fields["prompt_tokens"] = self.num_prompt_tokens
            fields["completion_tokens"] = self.num_generated_tokens
        if self.time_to_first_token_s is not None:
            fields["time_to_first_token_s"] = round(self.time_to_first_token_s, 6)
        if self.key_name:
            fields["key"] = self.key_name
        return json.dumps(fields, separators=(",", ":"))

    def as_text(self, time: str) -> str:
        words = [
            time,
            self.request_id,
            self.key_name or "-",
            shown(f"{self.method} {self.path}", MAX_PATH_CHARS),
            str(self.status),
            f"{self.duration_s:.3f}s",
        ]
        if self.num_prompt_tokens:
            words.append(f"{self.num_prompt_tokens}+{self.num_generated_tokens} tokens")
        if self.time_to_first_token_s is not None:
            words.append(f"first after {self.time_to_first_token_s:.3f}s")
        if not self.is_whole:
            words.append("cut off")
        return " ".join(words)
