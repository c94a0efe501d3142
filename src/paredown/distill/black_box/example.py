"""Example: a conversation with its answer, as a line of the file that `paredown distill` reads."""

import json
from dataclasses import dataclass

from paredown.distill.black_box.request import Message


@dataclass(frozen=True, kw_only=True)
class Example:
    """`completion` is to be learned. `rejected` is a worse answer, where one is known."""

    messages: tuple[Message, ...]
    completion: str
    rejected: str | None = None

    @property
    def prompt(self) -> str:
        """The user's last words."""
        return self.messages[-1]["content"]

    def line(self, *, as_messages: bool) -> bytes:
        """Returns the JSON, with its end of line: `messages`, else `prompt` and `completion`, which
        hold a conversation of one message alone."""
        if as_messages:
            said = {"role": "assistant", "content": self.completion}
            fields: dict[str, object] = {"messages": [*map(dict, self.messages), said]}
        else:
            assert len(self.messages) == 1
            fields = {"prompt": self.prompt, "completion": self.completion}
        if self.rejected is not None:
            fields["rejected"] = self.rejected
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
