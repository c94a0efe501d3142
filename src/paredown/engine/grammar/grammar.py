"""Grammar: the form that an answer must have."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast, get_args

from paredown.errors import RequestError
from paredown.shown import quoted

GrammarKind = Literal["json_schema", "json_object", "regex", "choice", "lark"]
KINDS: tuple[str, ...] = get_args(GrammarKind)
MAX_TEXT_BYTES = 128_000
MAX_CHOICES = 10_000


class GrammarError(RequestError):
    """A grammar is wrong, not supported, or too large; the message names the keyword at fault.
    `origin` is the field that holds the grammar."""

    def __init__(self, what: str, *, seen: object, remedy: str, origin: str) -> None:
        self.origin = origin
        super().__init__(f"{origin}: {what}", seen=seen, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """`kind` says how `text` is read:

    `json_schema`  a JSON schema; the answer is a JSON text that it allows
    `json_object`  nothing; the answer is any JSON object
    `regex`        a regular expression in Rust's syntax, which the whole answer matches
    `choice`       a JSON list of texts, one of which is the answer
    `lark`         a context-free grammar in llguidance's Lark, or in llama.cpp's GBNF

    `origin` is what errors call it. Raises GrammarError for an unknown kind or too much text.
    """

    kind: GrammarKind
    text: str = ""
    origin: str = field(default="grammar", compare=False)
    # What was made of it, which lives as long as it does.
    _forms: list[object] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise GrammarError(
                "there is no such kind of grammar",
                seen=quoted(self.kind),
                remedy=f"Use {', '.join(KINDS)}.",
                origin=self.origin,
            )
        if not isinstance(self.text, str):
            raise GrammarError(
                "a grammar is a text",
                seen=type(self.text).__name__,
                remedy="Use Grammar.json_schema for a schema that is an object.",
                origin=self.origin,
            )
        num_bytes = len(self.text.encode(errors="surrogatepass"))
        if num_bytes > MAX_TEXT_BYTES:
            raise GrammarError(
                "the grammar is too long",
                seen=f"{num_bytes:,} bytes",
                remedy=f"Send at most {MAX_TEXT_BYTES:,}.",
                origin=self.origin,
            )

    @classmethod
    def json_schema(
        cls, schema: Mapping[str, Any] | bool | str, *, origin: str = "grammar"
    ) -> "Grammar":
        """Returns the grammar of a JSON schema, given as an object or as its text."""
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
        return cls(kind="json_schema", text=text, origin=origin)

    @classmethod
    def choice(cls, texts: Sequence[str], *, origin: str = "grammar") -> "Grammar":
        """Returns the grammar that allows these texts. Raises GrammarError for none, or for too
        many."""
        if not 1 <= len(texts) <= MAX_CHOICES or not all(isinstance(one, str) for one in texts):
            raise GrammarError(
                "a choice is a list of texts",
                seen=f"{len(texts):,} of them: {quoted(list(texts))}",
                remedy=f"Give 1 to {MAX_CHOICES:,} texts.",
                origin=origin,
            )
        return cls(kind="choice", text=json.dumps(list(texts), ensure_ascii=False), origin=origin)

    @cached_property
    def digest(self) -> bytes:
        """A digest of kind and text."""
        text = f"{self.kind} {self.text}".encode(errors="surrogatepass")
        return hashlib.blake2b(text, digest_size=32).digest()

    def keep(self, form: object) -> None:
        """Keeps what was made of this grammar alive as long as the grammar."""
        if not any(one is form for one in self._forms):
            self._forms.append(form)


def as_kind(name: str) -> GrammarKind:
    """Returns `name` as a kind; it must be one."""
    assert name in KINDS
    return cast(GrammarKind, name)
