"""Field rules: the allowed values of each sampling parameter, with a remedy for each."""

from dataclasses import dataclass

from paredown.engine.grammar.grammar import Grammar
from paredown.errors import RequestError
from paredown.shown import quoted

MAX_TOKEN_ID = 2**31 - 1
MAX_SEEN_CHARS = 80


class ParameterError(RequestError):
    """A sampling parameter is out of range; `field` names it."""

    def __init__(self, field: str, *, seen: object, remedy: str) -> None:
        self.field = field
        super().__init__(f"{field} is out of range", seen=seen, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class Number:
    """Accepts a finite number from `low` to `high`; `above` excludes `low` itself."""

    low: float
    high: float
    remedy: str
    above: bool = False

    def check(self, field: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ParameterError(field, seen=quoted(value, MAX_SEEN_CHARS), remedy=self.remedy)
        # Written so that NaN, which compares false, is refused.
        if not self.low <= value <= self.high or (self.above and value == self.low):
            raise ParameterError(field, seen=quoted(value, MAX_SEEN_CHARS), remedy=self.remedy)


@dataclass(frozen=True, kw_only=True)
class Integer:
    """Accepts an integer from `low` to `high`, or None where that is allowed."""

    low: int
    high: int
    remedy: str
    optional: bool = False

    def check(self, field: str, value: object) -> None:
        if value is None and self.optional:
            return
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if not is_integer or not self.low <= value <= self.high:  # type: ignore[operator]
            raise ParameterError(field, seen=quoted(value, MAX_SEEN_CHARS), remedy=self.remedy)


TOKEN_ID = Integer(low=0, high=MAX_TOKEN_ID, remedy="A token id is an integer from 0 on.")


@dataclass(frozen=True, kw_only=True)
class Flag:
    """Accepts True or False."""

    def check(self, field: str, value: object) -> None:
        if not isinstance(value, bool):
            raise ParameterError(
                field, seen=quoted(value, MAX_SEEN_CHARS), remedy="Use True or False."
            )


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Accepts a tuple of texts of bounded number and length."""

    max_count: int
    max_chars: int

    def check(self, field: str, value: object) -> None:
        _check_tuple(field, value, 0, self.max_count, "strings")
        for text in value:  # type: ignore[attr-defined]
            if not isinstance(text, str) or not 1 <= len(text) <= self.max_chars:
                remedy = f"A string in {field} has 1 to {self.max_chars} characters."
                raise ParameterError(field, seen=quoted(text, MAX_SEEN_CHARS), remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class TokenIds:
    """Accepts a tuple of token ids of bounded number, or None where that is allowed."""

    max_count: int
    min_count: int = 0
    optional: bool = False

    def check(self, field: str, value: object) -> None:
        if value is None and self.optional:
            return
        _check_tuple(field, value, self.min_count, self.max_count, "token ids")
        assert isinstance(value, tuple)
        # The usual case, in a tenth of the time: there may be a whole vocabulary of them.
        if not value or (
            set(map(type, value)) == {int} and 0 <= min(value) <= max(value) <= MAX_TOKEN_ID
        ):
            return
        for token_id in value:
            TOKEN_ID.check(field, token_id)


@dataclass(frozen=True, kw_only=True)
class TokenSequences:
    """Accepts a tuple of tuples of token ids, none of them empty."""

    max_count: int
    max_tokens: int

    def check(self, field: str, value: object) -> None:
        _check_tuple(field, value, 0, self.max_count, "token sequences")
        for sequence in value:  # type: ignore[attr-defined]
            TokenIds(min_count=1, max_count=self.max_tokens).check(field, sequence)


@dataclass(frozen=True, kw_only=True)
class TokenNumbers:
    """Accepts a dict from token ids to numbers."""

    max_count: int
    number: Number

    def check(self, field: str, value: object) -> None:
        if not isinstance(value, dict) or len(value) > self.max_count:
            remedy = f"Give a dict of at most {self.max_count} token ids to numbers."
            raise ParameterError(field, seen=quoted(value, MAX_SEEN_CHARS), remedy=remedy)
        for token_id, number in value.items():
            TOKEN_ID.check(field, token_id)
            self.number.check(field, number)


@dataclass(frozen=True, kw_only=True)
class Function:
    """Accepts a callable or None."""

    def check(self, field: str, value: object) -> None:
        if value is not None and not callable(value):
            raise ParameterError(
                field, seen=quoted(value, MAX_SEEN_CHARS), remedy="Give a function or None."
            )


@dataclass(frozen=True, kw_only=True)
class AGrammar:
    """Accepts a Grammar or None."""

    def check(self, field: str, value: object) -> None:
        if value is not None and not isinstance(value, Grammar):
            raise ParameterError(
                field,
                seen=quoted(value, MAX_SEEN_CHARS),
                remedy="Give a Grammar, such as Grammar.json_schema({...}), or None.",
            )


Rule = (
    Number | Integer | Flag | Texts | TokenIds | TokenSequences | TokenNumbers | Function | AGrammar
)


def _check_tuple(field: str, value: object, low: int, high: int, what: str) -> None:
    if not isinstance(value, tuple) or not low <= len(value) <= high:
        raise ParameterError(
            field,
            seen=quoted(value, MAX_SEEN_CHARS),
            remedy=f"Give a list or tuple of {low} to {high} {what}.",
        )
