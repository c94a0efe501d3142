"""SpeculationStats: what speculation achieved."""

from dataclasses import asdict, dataclass, field


@dataclass(kw_only=True)
class SpeculationStats:
    """Counts since the engine began. `num_proposed[k]` draft tokens were at place k of a draft and
    `num_accepted[k]` of them were accepted. `num_tested` draft tokens came after no rejected one.
    `num_steps` counts the steps that gave a request tokens, with or without drafts, and
    `num_tokens` those tokens. `failure` is the proposer's error, after which nothing is drafted."""

    num_steps: int = 0
    num_tokens: int = 0
    num_proposed: list[int] = field(default_factory=list)
    num_accepted: list[int] = field(default_factory=list)
    num_tested: int = 0
    drafting_s: float = 0.0
    failure: str | None = None

    def add_tokens(self, num_tokens: int, *, num_requests: int) -> None:
        """Records that a step gave `num_requests` requests `num_tokens` tokens in total."""
        self.num_steps += num_requests
        self.num_tokens += num_tokens

    def observe(self, num_proposed: int, num_accepted: int) -> None:
        """Records that the first `num_accepted` of a request's `num_proposed` draft tokens were
        accepted."""
        self.num_tested += min(num_accepted + 1, num_proposed)
        missing = num_proposed - len(self.num_proposed)
        self.num_proposed += [0] * missing
        self.num_accepted += [0] * missing
        for k in range(num_proposed):
            self.num_proposed[k] += 1
            self.num_accepted[k] += k < num_accepted

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {
            "tokens_per_step": self.tokens_per_step,
            "acceptance": self.acceptance,
            "acceptance_rate": self.acceptance_rate,
        }

    @property
    def tokens_per_step(self) -> float:
        """Returns the mean number of tokens per step of a request; it is 1 without any draft
        token."""
        return self.num_tokens / self.num_steps if self.num_steps else 0.0

    @property
    def acceptance(self) -> float:
        """Returns the share of all draft tokens that were accepted."""
        num_proposed = sum(self.num_proposed)
        return sum(self.num_accepted) / num_proposed if num_proposed else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Returns the share of the tested draft tokens that were accepted: the alpha of Leviathan
        et al."""
        return sum(self.num_accepted) / self.num_tested if self.num_tested else 0.0
