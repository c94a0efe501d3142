"""ReasoningFormat: how a model marks what it thinks, as its chat template shows it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ReasoningFormat:
    """Reasoning stands between `start` and `end` at the beginning of a turn. `is_opened` says
    whether a prompt without further values already has the start. `switch` is the template value
    that turns reasoning on and off, where there is one."""

    start: str
    end: str
    is_opened: bool = False
    switch: str | None = None

    def stands_open(self, prompt: str) -> bool:
        """Returns whether a rendered prompt ends inside reasoning."""
        return prompt.rstrip().endswith(self.start.strip())
