"""Lowers a client's JSON schema to the keywords that llguidance supports.

A keyword that is not kept is refused by name. docs/guide/structured_output.md has the list, and
where an answer is held to less than all that a schema allows.
"""

from collections.abc import Callable, Mapping

from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.engine.grammar.schema_drafts import Schema, draft_of, modern
from paredown.engine.grammar.schema_evaluated import (
    Case,
    Evaluation,
    closed_items,
    closed_properties,
)
from paredown.engine.grammar.schema_negation import escaped, negated
from paredown.engine.grammar.schema_overlap import exclude_each_other
from paredown.engine.grammar.schema_references import SchemaReferences

# Schemas within the one that is lowered, those that stand for other keywords included.
_MAX_SCHEMAS = 20_000
_MAX_CONTAINS = 64
# Integers beyond it are not all floats, in which llguidance computes bounds.
_MAX_NUMBER = 2**53
_NUMBERS = frozenset(
    {
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maximum",
        "minimum",
        "multipleOf",
    }
)
_COUNTS = frozenset(
    {"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"}
)
_KEPT = _NUMBERS | _COUNTS | {"pattern", "required", "type"}
_ONE = frozenset({"additionalProperties", "items"})
_LISTS = frozenset({"allOf", "anyOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Each of these is held to one that it includes.
_FORMATS = {
    "date-time": "date-time",
    "time": "time",
    "date": "date",
    "duration": "duration",
    "email": "email",
    "idn-email": "email",
    "hostname": "hostname",
    "idn-hostname": "hostname",
    "ipv4": "ipv4",
    "ipv6": "ipv6",
    "uuid": "uuid",
    "uri": "uri",
    "uri-reference": "uri",
    "uri-template": "uri",
    "iri": "uri",
    "iri-reference": "uri",
}
_FORMAT_PATTERNS = {
    "json-pointer": r"^(?:/(?:[^~/]|~[01])*)*$",
    "relative-json-pointer": r"^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)$",
}


def lowered_schema(schema: object, *, parts_one_of: bool = False) -> Schema:
    """Returns the schema as llguidance reads it. With `parts_one_of` the options of each oneOf are
    told apart by negation, where llguidance does not see that they exclude each other. Raises
    NotSupportedError."""
    return _Lowering(schema, parts_one_of).run()


class _Lowering:
    def __init__(self, root: object, parts_one_of: bool) -> None:
        self._root = root
        self._draft = draft_of(root)
        self._references = SchemaReferences(root, self._draft)
        self._parts_one_of = parts_one_of
        # What references lead to, by id(), and those of it that are not lowered yet.
        self._names: dict[int, str] = {}
        self._pending: list[tuple[str, object]] = []
        self._num_schemas = 0

    def run(self) -> Schema:
        lowered = self._lower(self._root, "")
        if lowered is False:
            raise NotSupportedError("the schema allows nothing")
        whole: Schema = {} if lowered is True else lowered
        parts: Schema = {}
        while self._pending:
            name, part = self._pending.pop()
            parts[name] = self._lower(part, "")
        return {**whole, "$defs": parts} if parts else whole

    def _lower(self, schema: object, base: str) -> Schema | bool:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise NotSupportedError("a schema is an object, true or false")
        self._num_schemas += 1
        if self._num_schemas > _MAX_SCHEMAS:
            raise NotSupportedError("the schema has too many parts")
        base = self._references.base_of(schema) or base
        schema = modern(schema, self._draft)
        lowered: Schema = {}
        more: list[object] = []
        for keyword, value in schema.items():
            if keyword in _KEPT:
                lowered[keyword] = _checked(keyword, value)
                if keyword == "minProperties":
                    _check_names(value, schema.get("required"))
            elif keyword in _ONE:
                lowered[keyword] = self._lower(value, base)
            elif keyword == "oneOf":
                self._lower_one_of(schema, lowered, more, base)
            elif keyword in _LISTS:
                lowered[keyword] = self._lower_list(keyword, value, base)
            elif keyword in _MAPS:
                lowered[keyword] = self._lower_map(keyword, value, base)
            elif keyword in _REFERENCES:
                lowered["$ref"] = self._reference({keyword: value}, base)
            elif keyword == "format":
                _lower_format(schema, lowered, more)
            elif keyword in _RULES:
                more += _RULES[keyword](self, schema, base)
        if more:
            own = lowered.get("allOf", [])
            assert isinstance(own, list)
            lowered["allOf"] = [*own, *(self._lower(one, base) for one in more)]
        return lowered

    def _lower_list(self, keyword: str, value: object, base: str) -> list[Schema | bool]:
        if not isinstance(value, list):
            raise NotSupportedError(f"{keyword}: it is a list of schemas")
        return [self._lower(one, base) for one in value]

    def _lower_one_of(self, schema: Schema, lowered: Schema, more: list[object], base: str) -> None:
        """Adds options that exclude each other as those of anyOf. Others are told apart by
        negation, or left to llguidance, which sees some differences that are not looked for here.
        """
        value = schema["oneOf"]
        if not isinstance(value, list):
            raise NotSupportedError("oneOf: it is a list of schemas")
        if exclude_each_other(value, self._draft, lambda one: self._target(one, base)):
            if "anyOf" in schema:
                more.append({"anyOf": value})
            else:
                lowered["anyOf"] = self._lower_list("oneOf", value, base)
            return
        if self._parts_one_of:
            value = [
                {"allOf": [one, *(negated(x, self._draft, "oneOf") for x in value if x is not one)]}
                for one in value
            ]
        lowered["oneOf"] = self._lower_list("oneOf", value, base)

    def _lower_map(self, keyword: str, value: object, base: str) -> dict[str, Schema | bool]:
        if not isinstance(value, dict):
            raise NotSupportedError(f"{keyword}: it is an object of schemas")
        return {name: self._lower(one, base) for name, one in value.items()}

    def _target(self, reference: Mapping[str, object], base: str) -> object:
        ((keyword, value),) = reference.items()
        if keyword == "$dynamicRef":
            return self._references.resolve_dynamic(value, base)
        if keyword == "$recursiveRef":
            return self._references.resolve_recursive(base)
        return self._references.resolve(value, base)

    def _reference(self, reference: Mapping[str, object], base: str) -> str:
        part = self._target(reference, base)
        name = self._names.get(id(part))
        if name is None:
            name = self._names[id(part)] = f"r{len(self._names)}"
            self._pending.append((name, part))
        return f"#/$defs/{name}"

    def _conditional(self, schema: Schema, base: str) -> list[object]:
        then, other = schema.get("then", True), schema.get("else", True)
        if then is True and other is True:
            return []
        condition = schema["if"]
        opposite = negated(condition, self._draft, "if")
        return [{"anyOf": [{"allOf": [condition, then]}, {"allOf": [opposite, other]}]}]

    def _not(self, schema: Schema, base: str) -> list[object]:
        return [negated(schema["not"], self._draft, "not")]

    def _dependent_required(self, schema: Schema, base: str) -> list[object]:
        value = schema["dependentRequired"]
        if not isinstance(value, dict):
            raise NotSupportedError("dependentRequired: it is an object of lists")
        return [
            {"anyOf": [{"properties": {name: False}}, {"required": [name, *others]}]}
            for name, others in value.items()
            if others
        ]

    def _dependent_schemas(self, schema: Schema, base: str) -> list[object]:
        value = schema["dependentSchemas"]
        if not isinstance(value, dict):
            raise NotSupportedError("dependentSchemas: it is an object of schemas")
        return [
            {"anyOf": [{"properties": {name: False}}, {"allOf": [{"required": [name]}, one]}]}
            for name, one in value.items()
        ]

    def _property_names(self, schema: Schema, base: str) -> list[object]:
        """Returns what holds names to a pattern: that is all that a grammar can say of them."""
        names = schema["propertyNames"]
        if names is True or names == {}:
            return []
        allowed = {} if names is False else {_name_pattern(names): True}
        return [{"patternProperties": allowed, "additionalProperties": False}]

    def _contains(self, schema: Schema, base: str) -> list[object]:
        """Returns what lets the wanted items come first."""
        least, most = schema.get("minContains", 1), schema.get("maxContains")
        for keyword, count in (("minContains", least), ("maxContains", most)):
            if count is not None and not _is_count(count):
                raise NotSupportedError(f"{keyword}: at most {_MAX_CONTAINS} are supported")
        assert isinstance(least, int | float)
        least = int(least)
        wanted = [schema["contains"]] * least
        found: list[object] = [{"prefixItems": wanted, "minItems": least}] if least else []
        if isinstance(most, int | float):
            if most < least:
                return [{"not": {"type": "array"}}]
            rest = negated(schema["contains"], self._draft, "maxContains")
            found.append({"prefixItems": [True] * int(most), "items": rest})
        return found

    def _unevaluated_properties(self, schema: Schema, base: str) -> list[object]:
        keyword = "unevaluatedProperties"
        if schema[keyword] is True or "additionalProperties" in schema:
            return []
        return [closed_properties(self._cases(schema, keyword, base), schema[keyword])]

    def _unevaluated_items(self, schema: Schema, base: str) -> list[object]:
        keyword = "unevaluatedItems"
        if schema[keyword] is True or "items" in schema:
            return []
        return [closed_items(self._cases(schema, keyword, base), schema[keyword])]

    def _cases(self, schema: Schema, keyword: str, base: str) -> list[Case]:
        def resolve(reference: Mapping[str, object]) -> object:
            return self._target(reference, base)

        looked_at = Evaluation(self._draft, resolve, keyword)
        others = {name: one for name, one in schema.items() if name != keyword}
        return looked_at.cases(others)

    def _unique_items(self, schema: Schema, base: str) -> list[object]:
        most = schema.get("maxItems")
        if schema["uniqueItems"] is False or (isinstance(most, int) and most <= 1):
            return []
        raise NotSupportedError("uniqueItems: it is not supported")


_RULES: dict[str, Callable[[_Lowering, Schema, str], list[object]]] = {
    "if": _Lowering._conditional,
    "not": _Lowering._not,
    "dependentRequired": _Lowering._dependent_required,
    "dependentSchemas": _Lowering._dependent_schemas,
    "propertyNames": _Lowering._property_names,
    "contains": _Lowering._contains,
    "unevaluatedProperties": _Lowering._unevaluated_properties,
    "unevaluatedItems": _Lowering._unevaluated_items,
    "uniqueItems": _Lowering._unique_items,
}


def _checked(keyword: str, value: object) -> object:
    """Returns the value, a count as an integer. Raises NotSupportedError for numbers that a grammar
    would round."""
    if keyword in _COUNTS and isinstance(value, float) and value.is_integer():
        return int(value)
    if keyword in _NUMBERS:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int | float) and not abs(one) <= _MAX_NUMBER:
                raise NotSupportedError(f"{keyword}: numbers beyond 2^53 are not supported")
    return value


def _is_count(value: object) -> bool:
    """Returns whether the value is a number of items that `contains` may ask for."""
    return isinstance(value, int | float) and value in range(_MAX_CONTAINS + 1)


def _check_names(least: object, required: object) -> None:
    """Raises NotSupportedError where several names have to differ that the schema does not list: a
    grammar does not know which it has seen."""
    num_required = len(set(map(str, required))) if isinstance(required, list) else 0
    if isinstance(least, int | float) and least > num_required + 1:
        raise NotSupportedError("minProperties: at most one more than are required is supported")


def _lower_format(schema: Schema, lowered: Schema, more: list[object]) -> None:
    name, kinds = schema["format"], schema.get("type")
    if kinds is not None and "string" not in (kinds if isinstance(kinds, list) else [kinds]):
        return  # a format is of texts
    if not isinstance(name, str) or name not in _FORMATS | _FORMAT_PATTERNS:
        raise NotSupportedError(f"format: {str(name)[:100]} is not supported")
    if name in _FORMATS:
        lowered["format"] = _FORMATS[name]
    else:
        more.append({"pattern": _FORMAT_PATTERNS[name]})


def _name_pattern(names: object) -> str:
    """Returns the pattern of the names that `propertyNames` allows."""
    found = {
        name: value
        for name, value in (names.items() if isinstance(names, Mapping) else ())
        if name in _KEPT | _ONE | _LISTS | _MAPS | _RULES.keys()
        or name in (*_REFERENCES, "format", "oneOf")
    }
    if found.get("type") == "string":
        del found["type"]
    if found.keys() == {"pattern"} and isinstance(found["pattern"], str):
        return found["pattern"]
    if found and found.keys() <= {"minLength", "maxLength"}:
        least, most = found.get("minLength", 0), found.get("maxLength", "")
        return rf"^[\s\S]{{{least},{most}}}$"
    values = found.get("enum", [found.get("const")])
    if found.keys() in ({"enum"}, {"const"}) and isinstance(values, list):
        return f"^(?:{'|'.join(escaped(one) for one in values if isinstance(one, str))})$"
    raise NotSupportedError(f"propertyNames: {', '.join(found) or 'this'} in it is not supported")
