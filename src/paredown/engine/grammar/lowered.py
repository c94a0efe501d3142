"""Brings every kind of grammar into the form that llguidance reads."""

import json
import re
from collections.abc import Iterator

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from paredown.engine.grammar.grammar import GrammarKind
from paredown.engine.grammar.json_schema import lowered_schema
from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.json_text import JsonTextError, parse_json

# Between the parts of a JSON text: a space, or a new line with its indentation. Models that did not
# expect a form write blanks as long as they may.
_BLANKS = r"\x20|\x0A[\x20\x09]{0,24}"
_JSON_RULE = re.compile(r"(?<![^\s:|(])%json\s*(?={)")


def lowered(kind: GrammarKind, text: str) -> Iterator[str]:
    """Yields llguidance's grammar, and another to try where that one fails for a `oneOf`. Raises
    NotSupportedError."""
    if kind == "json_object":
        yield _json_grammar({"type": "object"})
    elif kind == "json_schema":
        schema = _parsed(text)
        for parts_one_of in (False, True):
            yield _json_grammar(lowered_schema(schema, parts_one_of=parts_one_of))
    elif kind == "regex":
        yield LLMatcher.grammar_from_regex(text)
    elif kind == "choice":
        yield _choice_grammar(_parsed(text))
    else:
        lark = _as_lark(text)
        for parts_one_of in (False, True):
            yield LLMatcher.grammar_from_lark(_with_lowered_schemas(lark, parts_one_of))


def _parsed(text: str) -> object:
    try:
        return parse_json(text)
    except JsonTextError as error:
        raise NotSupportedError(f"it is not JSON: {error}") from error


def _json_grammar(schema: dict[str, object]) -> str:
    return LLMatcher.grammar_from_json_schema(
        json.dumps(schema, ensure_ascii=False),
        overrides={"whitespace_pattern": _BLANKS, "lenient": False},
    )


def _choice_grammar(texts: object) -> str:
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise NotSupportedError("a choice is a JSON list of texts")
    options = " | ".join(json.dumps(one) for one in dict.fromkeys(texts))
    return LLMatcher.grammar_from_lark(f"start: {options}")


def _as_lark(text: str) -> str:
    try:
        return any_to_lark(text)
    except Exception as error:  # the converter raises whatever it meets
        raise NotSupportedError(f"it is neither Lark nor GBNF: {error}") from error


def _with_lowered_schemas(lark: str, parts_one_of: bool) -> str:
    """Returns the grammar with the JSON schemas in it lowered, as `%json {...}` holds them. What is
    in `x-guidance` stays. A schema that asks there to be read leniently stays as it is where it is
    not supported."""
    written, end = [], 0
    for found in _JSON_RULE.finditer(lark):
        if found.start() < end:
            continue
        try:
            schema, after = json.JSONDecoder().raw_decode(lark, found.end())
        except (ValueError, RecursionError):
            continue  # the library says what is wrong with it
        guidance = schema.get("x-guidance", {"whitespace_pattern": _BLANKS})
        try:
            lower = lowered_schema(schema, parts_one_of=parts_one_of)
        except NotSupportedError:
            if isinstance(guidance, dict) and guidance.get("lenient"):
                continue
            raise
        text = json.dumps({"x-guidance": guidance, **lower}, ensure_ascii=False)
        written += [lark[end : found.end()], text]
        end = after
    return "".join(written) + lark[end:]
