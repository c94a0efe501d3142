"""Says which parts of a value a JSON schema looks at, for `unevaluatedProperties` and
`unevaluatedItems`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.engine.grammar.schema_drafts import Schema, list_of, map_of, modern
from paredown.engine.grammar.schema_negation import negated

_MAX_CASES = 64
Resolve = Callable[[Mapping[str, object]], object]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Where the value is as in all of `given`, the schema looks at these properties and at so many
    first items; at all of them where `has_all_...` is set."""

    given: tuple[object, ...] = ()
    names: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    has_all_names: bool = False
    num_items: int = 0
    has_all_items: bool = False

    def joined(self, other: "Case") -> "Case":
        return Case(
            given=self.given + other.given,
            names=self.names | other.names,
            patterns=self.patterns | other.patterns,
            has_all_names=self.has_all_names or other.has_all_names,
            num_items=max(self.num_items, other.num_items),
            has_all_items=self.has_all_items or other.has_all_items,
        )


@dataclass
class Evaluation:
    """Finds the cases of schemas. `resolve` follows a schema's $ref."""

    draft: int
    resolve: Resolve
    keyword: str
    _open: set[int] = field(default_factory=set)

    def cases(self, schema: object) -> list[Case]:
        """Returns cases, at least one of which holds for any value that the schema allows. Raises
        NotSupportedError where they are too many or cannot be told apart."""
        if not isinstance(schema, Mapping):
            return [Case()]
        if id(schema) in self._open:
            raise NotSupportedError(f"{self.keyword}: a reference in it leads to itself")
        self._open.add(id(schema))
        try:
            return self._cases(schema)
        finally:
            self._open.discard(id(schema))

    def _cases(self, whole: Mapping[str, object]) -> list[Case]:
        schema = modern(whole, self.draft)
        found = [self._own(schema)]
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in schema:
                found = self._both(found, self.cases(self.resolve({keyword: schema[keyword]})))
        for one in list_of(schema, "allOf"):
            found = self._both(found, self.cases(one))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                found = self._both(found, self._some_of(list_of(schema, keyword)))
        if "if" in schema:
            found = self._both(found, self._conditional(schema))
        for name, one in map_of(schema, "dependentSchemas").items():
            with_it = [
                case.joined(Case(given=({"required": [name]}, one))) for case in self.cases(one)
            ]
            without = Case(given=({"properties": {name: False}},))
            found = self._both(found, [without, *with_it])
        return found

    def _own(self, schema: Schema) -> Case:
        names, patterns = map_of(schema, "properties"), map_of(schema, "patternProperties")
        if "contains" in schema and self.keyword == "unevaluatedItems":
            raise NotSupportedError("unevaluatedItems: contains beside it is not supported")
        return Case(
            names=frozenset(names),
            patterns=frozenset(patterns),
            has_all_names="additionalProperties" in schema or "unevaluatedProperties" in schema,
            num_items=len(list_of(schema, "prefixItems")),
            has_all_items="items" in schema or "unevaluatedItems" in schema,
        )

    def _some_of(self, options: Sequence[object]) -> list[Case]:
        """Returns the cases of each option, and of all of them where they are few."""
        each = [
            [case.joined(Case(given=(option,))) for case in self.cases(option)]
            for option in options
        ]
        found = [case for cases in each for case in cases]
        if 1 < len(each) <= 3:
            for chosen in product(*[[None, *cases] for cases in each]):
                taken = [one for one in chosen if one is not None]
                if len(taken) > 1:
                    case = taken[0]
                    for one in taken[1:]:
                        case = case.joined(one)
                    found.append(case)
        return self._few(found)

    def _conditional(self, schema: Schema) -> list[Case]:
        condition = schema["if"]
        then, other = schema.get("then", True), schema.get("else", True)
        found = self._both(self.cases(condition), self.cases(then))
        found = [case.joined(Case(given=(condition, then))) for case in found]
        opposite = negated(condition, self.draft, "if")
        return found + [case.joined(Case(given=(opposite, other))) for case in self.cases(other)]

    def _both(self, ones: Sequence[Case], others: Sequence[Case]) -> list[Case]:
        return self._few([one.joined(other) for one in ones for other in others])

    def _few(self, cases: list[Case]) -> list[Case]:
        if len(cases) > _MAX_CASES:
            raise NotSupportedError(f"{self.keyword}: it depends on too many alternatives")
        return cases


def closed_properties(cases: Sequence[Case], rest: object) -> Schema:
    """Returns a schema under which properties that are not looked at are as `rest` says."""
    return _closed(
        cases,
        lambda case: (
            None
            if case.has_all_names
            else {
                "properties": dict.fromkeys(sorted(case.names), True),
                "patternProperties": dict.fromkeys(sorted(case.patterns), True),
                "additionalProperties": rest,
            }
        ),
    )


def closed_items(cases: Sequence[Case], rest: object) -> Schema:
    """Returns the same for items."""
    return _closed(
        cases,
        lambda case: (
            None if case.has_all_items else {"prefixItems": [True] * case.num_items, "items": rest}
        ),
    )


def _closed(cases: Sequence[Case], close: Callable[[Case], Schema | None]) -> Schema:
    options: list[object] = []
    for case in cases:
        closing = close(case)
        options.append({"allOf": [*case.given, *([] if closing is None else [closing])]})
    return {"anyOf": options}
