"""Brings the schemas of all drafts of JSON Schema into the keywords of draft 2020-12."""

from collections.abc import Mapping

Schema = dict[str, object]

_DRAFTS = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
LATEST = 2020
# The first draft that has the keyword, where that is not the oldest. Others ignore it.
_SINCE = {
    "$id": 6,
    "const": 6,
    "contains": 6,
    "propertyNames": 6,
    "if": 7,
    "then": 7,
    "else": 7,
    "$anchor": 2019,
    "$recursiveRef": 2019,
    "dependentRequired": 2019,
    "dependentSchemas": 2019,
    "minContains": 2019,
    "maxContains": 2019,
    "unevaluatedItems": 2019,
    "unevaluatedProperties": 2019,
    "$dynamicRef": 2020,
    "$dynamicAnchor": 2020,
    "prefixItems": 2020,
}


def draft_of(root: object) -> int:
    """Returns the draft that a schema names; the latest for none, and for others."""
    named = root.get("$schema") if isinstance(root, Mapping) else None
    return _DRAFTS.get(named.rstrip("#"), LATEST) if isinstance(named, str) else LATEST


def modern(schema: Mapping[str, object], draft: int) -> Schema:
    """Returns the same schema with the keywords of the latest draft; its subschemas stay."""
    if draft <= 7 and "$ref" in schema:
        return {"$ref": schema["$ref"]}
    found: Schema = {}
    for name, value in schema.items():
        if _SINCE.get(name, 0) > draft:
            continue
        if name == "dependencies" and isinstance(value, dict):
            required = {key: one for key, one in value.items() if isinstance(one, list)}
            others = {key: one for key, one in value.items() if not isinstance(one, list)}
            found |= {"dependentRequired": required} if required else {}
            found |= {"dependentSchemas": others} if others else {}
        elif name == "items" and isinstance(value, list):
            found["prefixItems"] = value
            if "additionalItems" in schema:
                found["items"] = schema["additionalItems"]
        elif name in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
            bound = name.removeprefix("exclusive").lower()
            if value and bound in schema:
                found[name] = schema[bound]
        elif name != "additionalItems":
            found[name] = value
    return found


def list_of(schema: Mapping[str, object], keyword: str) -> list[object]:
    """Returns the list that the keyword has, or an empty one."""
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def map_of(schema: Mapping[str, object], keyword: str) -> dict[str, object]:
    """Returns the object that the keyword has, or an empty one."""
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}
