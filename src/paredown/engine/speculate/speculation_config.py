"""SpeculationConfig: which proposer to use, and how many draft tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from paredown.errors import ConfigError
from paredown.shown import quoted

SpeculationKind = Literal["ngram", "reference", "suffix", "draft"]
KINDS: tuple[SpeculationKind, ...] = get_args(SpeculationKind)
MAX_DRAFT_TOKENS = 64
# Lookups are cheap; a draft model needs a step for each draft token.
_DEFAULT_DRAFT_TOKENS: dict[SpeculationKind, int] = {
    "ngram": 16,
    "reference": 16,
    "suffix": 16,
    "draft": 6,
}


@dataclass(frozen=True, kw_only=True)
class SpeculationConfig:
    """Validated on creation; raises ConfigError.

    `kind` "ngram" looks up the last tokens in the request's own text, and "reference" in
    `references` (texts or token ids). "suffix" searches its own and earlier answers, of which it
    keeps `max_cached_tokens` tokens. "draft" runs a smaller model of the same vocabulary,
    `draft_model`. `max_draft_tokens` bounds a draft (None: by kind). `is_adaptive` shortens or
    stops each request's drafts as it pays. A lookup needs `min_match` equal tokens.
    """

    kind: SpeculationKind
    max_draft_tokens: int | None = None
    is_adaptive: bool = True
    min_match: int = 2
    references: tuple[str | tuple[int, ...], ...] = ()
    max_cached_tokens: int = 1 << 16
    draft_model: str | Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(
                "unknown kind of speculation",
                seen=quoted(self.kind),
                remedy=f"Use one of {', '.join(KINDS)}.",
            )
        if self.max_draft_tokens is not None:
            self._check_count("max_draft_tokens", self.max_draft_tokens, MAX_DRAFT_TOKENS)
        self._check_count("min_match", self.min_match, 32)
        self._check_count("max_cached_tokens", self.max_cached_tokens, 1 << 24)
        self._check_belongs("references", bool(self.references), "reference")
        self._check_belongs("draft_model", self.draft_model is not None, "draft")

    @property
    def num_draft_tokens(self) -> int:
        """Returns the length of the longest draft."""
        if self.max_draft_tokens is None:
            return _DEFAULT_DRAFT_TOKENS[self.kind]
        return self.max_draft_tokens

    def check_context(self, max_positions: int) -> None:
        """Raises ConfigError for drafts that do not fit a model's context."""
        if self.num_draft_tokens >= max_positions:
            raise ConfigError(
                "drafts are longer than the context of the model allows",
                seen=f"max_draft_tokens {self.num_draft_tokens}, a context of {max_positions}",
                remedy=f"Use at most {max_positions - 1}.",
            )

    def _check_count(self, name: str, value: object, largest: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
            raise ConfigError(
                f"{name} is out of range", seen=quoted(value), remedy=f"Use 1 to {largest:,}."
            )

    def _check_belongs(self, name: str, is_given: bool, kind: SpeculationKind) -> None:
        """Raises ConfigError for an option that only another kind uses."""
        if is_given and self.kind != kind:
            raise ConfigError(
                f"{name} belongs to speculation of kind {kind!r}",
                seen=f"kind {self.kind!r}",
                remedy=f"Leave {name} out, or use kind {kind!r}.",
            )
        if name == "references" and self.kind == kind and not is_given:
            raise ConfigError(
                "there is no reference to look tokens up in",
                seen="no references",
                remedy="Give references, texts or token ids.",
            )
