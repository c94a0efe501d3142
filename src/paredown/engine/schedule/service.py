"""Service: for whom a request is served, and how urgently. It never changes an answer."""

import math
from dataclasses import dataclass

from paredown.engine.sampling.field_rules import ParameterError
from paredown.shown import quoted

MAX_NAME_CHARS = 1024
MAX_PRIORITY = 10
MAX_DEADLINE_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Validated on creation. Raises ParameterError with the field, the value and the remedy.

    `tenant` names a party that shares the machine with others (fair shares). `priority` goes from
    -10 to 10, larger first (policy "priority"). `deadline_s` is the time after arrival by which the
    request should start (policy "deadline"); None sets no deadline. Only requests with the same
    `cache_salt` share cached prefixes, so that answer times reveal nothing about others' prompts;
    None is the tenant's own salt. `num_together` is the number of answers requested at once, this
    one included; large numbers leave room for others (wide.py).
    """

    tenant: str = ""
    priority: int = 0
    deadline_s: float | None = None
    cache_salt: str | None = None
    num_together: int = 1

    def __post_init__(self) -> None:
        for field in ("tenant", "cache_salt"):
            name = getattr(self, field)
            if not (name is None and field == "cache_salt") and not (
                isinstance(name, str) and len(name) <= MAX_NAME_CHARS
            ):
                raise ParameterError(
                    field, seen=quoted(name, 80), remedy=f"Use at most {MAX_NAME_CHARS} characters."
                )
        priority, deadline_s = self.priority, self.deadline_s
        if type(priority) is not int or not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
            raise ParameterError(
                "priority",
                seen=quoted(priority, 80),
                remedy=f"Use an integer from -{MAX_PRIORITY} to {MAX_PRIORITY}.",
            )
        if deadline_s is not None and (
            type(deadline_s) not in (int, float)
            or not math.isfinite(deadline_s)
            or not 0 < deadline_s <= MAX_DEADLINE_S
        ):
            raise ParameterError(
                "deadline_s",
                seen=quoted(deadline_s, 80),
                remedy=f"Use seconds above 0 and at most {MAX_DEADLINE_S:.0f}.",
            )

    @property
    def salt(self) -> str:
        """Returns the salt. No tenant can name another tenant's default salt."""
        return f"tenant {self.tenant}" if self.cache_salt is None else f"salt {self.cache_salt}"
