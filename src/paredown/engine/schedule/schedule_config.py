"""ScheduleConfig: how the steps of an engine are filled."""

from dataclasses import dataclass
from typing import get_args

from paredown.engine.schedule.policies.table import POLICIES, PolicyName
from paredown.errors import ConfigError
from paredown.shown import quoted


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """`max_step_tokens` bounds the tokens of one step. At most `num_places` requests run; the
    others wait.

    `fair_shares` serves tenants equally; the policy then orders the requests of each.
    """

    max_step_tokens: int = 512
    max_running: int = 64
    max_waiting: int = 256
    policy: PolicyName = "first-come"
    fair_shares: bool = False
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        for name in ("max_step_tokens", "max_running", "max_waiting"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(
                    f"{name} must be a positive integer", seen=value, remedy="Use 1 or more."
                )
        if self.policy not in POLICIES:
            raise ConfigError(
                "there is no such policy",
                seen=quoted(self.policy),
                remedy=f"Use one of {', '.join(get_args(PolicyName))}.",
            )

    @property
    def num_places(self) -> int:
        """Returns how many requests can run together, each with a token in every step."""
        return min(self.max_running, self.max_step_tokens)
