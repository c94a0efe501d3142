"""Grammars: what is refused and why, within bounds, and what is kept."""

import gc
import json
import time
from collections.abc import Iterator

import pytest

from fakes.toy_executor import ToyTokenizer
from paredown.engine.grammar.grammar import MAX_TEXT_BYTES, Grammar, GrammarError
from paredown.engine.grammar.grammars import Grammars
from paredown.engine.grammar.limits import MAX_CACHED
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import UnsupportedError
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer

VOCAB_SIZE = 8192


@pytest.fixture(scope="module")
def grammars() -> Iterator[Grammars]:
    made = Grammars(Tokenizer.open(resolve_model(None)), VOCAB_SIZE)
    yield made
    made.close()


def schema(text: object, **fields: str) -> Grammar:
    return Grammar.json_schema(text if isinstance(text, str) else json.dumps(text), **fields)


def deep(depth: int) -> dict[str, object]:
    one: dict[str, object] = {"type": "null"}
    for _ in range(depth):
        one = {"type": "object", "properties": {"a": one}, "required": ["a"]}
    return one


@pytest.mark.parametrize(
    ("grammar", "told"),
    [
        (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema({"properties": {"a": {"format": "card-number"}}}), "format: card-number"),
        (schema({"$ref": "https://example.com/schema"}), r"\$ref"),
        (schema({"type": "string", "pattern": "(?=a)b"}), "pattern|look"),
        (schema({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}), "oneOf"),
        (schema({"not": {"pattern": "^a$"}}), "not: pattern"),
        (schema({"type": "number", "minimum": 2**60}), "minimum"),
        (schema({"type": "strange"}), "type"),
        (schema({"minimum": "low"}), "minimum"),
        (schema("{"), "not JSON"),
        (schema("[1]"), "a schema is"),
        (schema("false"), "allows nothing"),
        (schema({"type": "integer", "minimum": 5, "maximum": 4}), "nsatisfiable"),
        (Grammar(kind="regex", text="a("), "regex|parse"),
        (Grammar(kind="regex", text="a{2,1}"), "regex|parse|repetition"),
        (Grammar(kind="lark", text="start: missing"), "missing"),
        (Grammar(kind="lark", text="?"), "."),
        (Grammar(kind="choice", text="[1]"), "list of texts"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_named(grammars: Grammars, grammar: Grammar, told: str) -> None:
    with pytest.raises(GrammarError, match=told) as caught:
        grammars.compile(grammar)
    assert caught.value.origin == "grammar"
    assert len(str(caught.value)) < 6000


def is_allowed(grammars: Grammars, grammar: Grammar, text: str) -> bool:
    """Whether the whole text is an answer."""
    matcher = grammars.compile(grammar).matcher()
    tokens = Tokenizer.open(resolve_model(None)).encode(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


REFERRED = {
    "$defs": {"E": {"enum": ["x", "y"]}},
    "type": "object",
    "properties": {
        "e": {"$ref": "#/$defs/E"},
        "n": {"type": "integer", "minimum": 3, "maximum": 12},
        "s": {"type": "string", "maxLength": 2},
    },
    "required": ["e", "n", "s"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ('{"e":"y","n":12,"s":"🦊\\""}', True),
        ('{\n  "e": "x",\n  "n": 3,\n  "s": ""\n}', True),
        ('{"e":"z","n":12,"s":""}', False),
        ('{"e":"x","n":13,"s":""}', False),
        ('{"e":"x","n":2,"s":""}', False),
        ('{"e":"x","n":5,"s":"abc"}', False),
        ('{"e":{},"n":5,"s":"a"}', False),
        ('{"e":"x","n":5}', False),
        ('{"e":"x","n":5,"s":"a","t":1}', False),
        ('{"e":"x","n":5,"s":"a"} ', False),
    ],
)
def test_references_bounds_and_lengths_are_kept(
    grammars: Grammars, text: str, allowed: bool
) -> None:
    assert is_allowed(grammars, schema(REFERRED), text) is allowed


def test_options_that_a_property_tells_apart_may_be_references(grammars: Grammars) -> None:
    def animal(kind: str, **others: object) -> dict[str, object]:
        properties = {"kind": {"const": kind, "type": "string"}, **others}
        return {"type": "object", "properties": properties, "required": sorted(properties)}

    pets = {
        "oneOf": [{"$ref": "#/$defs/Cat", "title": "a cat"}, {"$ref": "#/$defs/Dog"}],
        "discriminator": {"propertyName": "kind"},
        "$defs": {
            "Cat": animal("cat", friend={"$ref": "#/$defs/Dog"}),
            "Dog": animal("dog", age={"type": "integer"}),
        },
    }
    dog = '{"kind": "dog", "age": 3}'
    assert is_allowed(grammars, schema(pets), dog)
    assert is_allowed(grammars, schema(pets), f'{{"kind": "cat", "friend": {dog}}}')
    assert not is_allowed(grammars, schema(pets), '{"kind": "cat", "age": 3}')


def test_options_may_refer_to_themselves(grammars: Grammars) -> None:
    leaf = {"type": "integer"}
    tree = {"type": "array", "items": {"oneOf": [{"$ref": "#/$defs/Tree"}, leaf]}, "maxItems": 2}
    one = schema({"oneOf": [{"$ref": "#/$defs/Tree"}, leaf], "$defs": {"Tree": tree}})
    assert is_allowed(grammars, one, "[[1, [2]], 3]")
    assert not is_allowed(grammars, one, '["a"]')


def test_schemas_in_a_lark_grammar_are_lowered_too(grammars: Grammars) -> None:
    one = json.dumps({"not": {"type": ["string", "object", "array", "number"]}})
    lark = Grammar(kind="lark", text=f'start: "<" body ">" | "%json {{"\nbody: %json {one}\n')
    assert is_allowed(grammars, lark, "<true>")
    assert is_allowed(grammars, lark, "%json {")
    assert not is_allowed(grammars, lark, "<5>")
    with pytest.raises(GrammarError, match="uniqueItems"):
        grammars.compile(Grammar(kind="lark", text='start: %json {"uniqueItems": true}'))
    lenient = '{"x-guidance": {"lenient": true}, "type": "array", "uniqueItems": true}'
    assert is_allowed(grammars, Grammar(kind="lark", text=f"start: %json {lenient}"), "[1,1]")


BOMBS = {
    "nested repeats": Grammar(kind="regex", text="((((a{1,99}){1,99}){1,99}){1,99}){1,99}"),
    "counted classes": Grammar(kind="regex", text=r"(\w{1,500}\s{1,500}){500}"),
    "intersections": schema(
        {"allOf": [{"pattern": f"^(.*{chr(97 + i)}){{20}}.*$"} for i in range(20)]}
    ),
    "rules that double": Grammar(
        kind="lark",
        text="start: r0\n"
        + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(40))
        + '\nr40: "a"',
    ),
    "rules that are ambiguous": Grammar(kind="lark", text='start: s\ns: s s s | s s | "a" | ""'),
    "deep schema": schema(deep(60)),
    "deeper schema": schema("[" * 100_000),
    "many references": schema(
        {
            "$ref": "#/$defs/d0",
            "$defs": {
                f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
                for i in range(100)
            }
            | {"d100": {"type": "null"}},
        }
    ),
    "long text": schema({"const": "x y z " * 20_000}),
    "reference loop": schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
    "allOf loop": schema({"allOf": [{"$ref": "#"}, {"type": "string"}]}),
    "doubling allOf": schema(
        {
            "allOf": [{"anyOf": [{"minimum": i}, {"maximum": 100 - i}]} for i in range(40)],
            "type": "integer",
        }
    ),
    "huge enum": schema({"enum": [f"value {i}" for i in range(8000)]}),
    "huge bounds": schema({"type": "string", "minLength": 10**9}),
    "huge array": schema({"type": "array", "minItems": 10**9, "items": {"type": "null"}}),
    "unevaluated cases": schema(
        {
            "allOf": [
                {"anyOf": [{"properties": {f"{i}{j}": {}}} for j in range(3)]} for i in range(9)
            ],
            "unevaluatedProperties": False,
        }
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_or_harmless_in_bounded_time(grammars: Grammars, name: str) -> None:
    start_s = time.process_time()
    try:
        compiled = grammars.compile(BOMBS[name])
    except GrammarError:
        pass
    else:
        matcher = compiled.matcher()
        matcher.compute_bitmask()
    # Of this process: what is refused is found elsewhere.
    assert time.process_time() - start_s < 3
    assert grammars.compile(Grammar.choice(["yes"])).matcher().is_accepting() is False


@pytest.mark.parametrize("text", ["x" * (MAX_TEXT_BYTES + 1), "東" * (MAX_TEXT_BYTES // 2)])
def test_long_texts_are_refused_at_once(text: str) -> None:
    with pytest.raises(GrammarError, match="guided_regex: the grammar is too long"):
        Grammar(kind="regex", text=text, origin="guided_regex")


def test_wrong_kinds_and_choices_are_refused() -> None:
    with pytest.raises(GrammarError, match="no such kind"):
        Grammar(kind="bnf", text="")  # type: ignore[arg-type]
    with pytest.raises(GrammarError, match="a text"):
        Grammar(kind="json_schema", text={})  # type: ignore[arg-type]
    for texts in ([], ["a", 5], ["a"] * 20_000):
        with pytest.raises(GrammarError, match="a list of texts"):
            Grammar.choice(texts)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="grammar"):
        SamplingParams(grammar={"type": "object"})  # type: ignore[arg-type]


def test_equal_grammars_are_compiled_once(grammars: Grammars) -> None:
    first, second = Grammar.choice(["a", "b"]), Grammar.choice(["a", "b"], origin="elsewhere")
    assert first == second
    assert grammars.find(first) is None
    assert grammars.compile(first) is grammars.compile(second) is grammars.find(second)


def test_a_grammar_is_kept_while_it_is_used_or_recent(grammars: Grammars) -> None:
    used, left = Grammar.choice(["used"]), Grammar.choice(["left"])
    compiled = grammars.compile(used)
    grammars.compile(left)
    del left
    for i in range(MAX_CACHED):
        grammars.compile(Grammar.choice([str(i)]))
    gc.collect()
    assert grammars.find(used) is compiled
    assert grammars.find(Grammar.choice(["left"])) is None
    assert grammars.find(Grammar.choice(["1"])) is not None


def test_a_tokenizer_without_what_is_needed_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cannot follow a grammar"):
        Grammars(ToyTokenizer(), 512).compile(Grammar.choice(["a"]))


def test_a_vocabulary_may_be_larger_or_smaller_than_the_logits() -> None:
    tokenizer = Tokenizer.open(resolve_model(None))
    for vocab_size in (tokenizer.vocab_size - 5, tokenizer.vocab_size + 70):
        grammars = Grammars(tokenizer, vocab_size)
        matcher = grammars.compile(Grammar(kind="json_object")).matcher()
        mask = matcher.compute_bitmask()
        assert len(mask) * 8 >= max(vocab_size, tokenizer.vocab_size)
        assert any(mask)
        assert not any(mask[-(-tokenizer.vocab_size // 8) :])
        grammars.close()
