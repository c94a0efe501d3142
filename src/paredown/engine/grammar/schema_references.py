"""SchemaReferences: the parts of a JSON schema by their names, for $ref and its relatives."""

from collections.abc import Mapping
from urllib.parse import unquote, urldefrag, urljoin

from paredown.engine.grammar.not_supported import NotSupportedError
from paredown.engine.grammar.schema_drafts import LATEST

# Values that are no schemas, whatever they look like.
_DATA = frozenset({"const", "enum", "default", "examples"})


class SchemaReferences:
    """Finds what references of one document lead to. Nothing outside of it is read."""

    def __init__(self, root: object, draft: int) -> None:
        self._id_name = "$id" if draft > 4 else "id"
        self._allows_siblings = draft > 7
        self._named: dict[str, object] = {}
        # The URI against which a part resolves its references, by the part's id().
        self._bases: dict[int, str] = {}
        self._dynamic: dict[str, list[object]] = {}
        self._is_latest = draft == LATEST
        self._recursive_anchors: list[object] = []
        self._root = root
        self._visit(root, "")

    def base_of(self, part: object) -> str:
        return self._bases.get(id(part), "")

    def resolve(self, reference: object, base: str) -> object:
        """Returns the schema that `reference` leads to. Raises NotSupportedError."""
        if not isinstance(reference, str):
            raise NotSupportedError("$ref: a reference is a text")
        uri = base + reference if reference.startswith("#") else urljoin(base, reference)
        place, fragment = urldefrag(uri)
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            found = self._named.get(f"{place}#{fragment}")
        else:
            found = self._named.get(place)
            if found is not None and fragment:
                found = _walk(found, fragment)
        if not isinstance(found, dict | bool):
            raise NotSupportedError(f"$ref: nothing in the schema is called {reference[:200]}")
        return found

    def resolve_dynamic(self, reference: object, base: str) -> object:
        """Returns what a $dynamicRef leads to, if that is the same wherever it is reached from."""
        found = self.resolve(reference, base)
        name = urldefrag(str(reference))[1]
        is_dynamic = isinstance(found, dict) and found.get("$dynamicAnchor") == name
        if is_dynamic and len(self._dynamic.get(name, [])) > 1:
            raise NotSupportedError(f"$dynamicRef: several parts are called #{name[:200]}")
        return found

    def resolve_recursive(self, base: str) -> object:
        """Returns what the $recursiveRef "#" leads to; the same holds."""
        if len(self._recursive_anchors) > 1:
            raise NotSupportedError("$recursiveRef: several parts have a $recursiveAnchor")
        return self.resolve("#", base)

    def _visit(self, part: object, base: str) -> None:
        if isinstance(part, list):
            for one in part:
                self._visit(one, base)
        if not isinstance(part, Mapping):
            if part is self._root:
                self._named[base] = part
            return
        own = part.get(self._id_name)
        if isinstance(own, str) and (self._allows_siblings or "$ref" not in part):
            place, fragment = urldefrag(urljoin(base, own))
            if fragment and not place.removeprefix(base):
                self._named[f"{base}#{fragment}"] = part  # an anchor, in drafts up to 7
            else:
                base = place
                self._named[base] = part
        elif part is self._root:
            self._named[base] = part
        if part is self._root:
            self._named.setdefault("", part)
        self._bases[id(part)] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := part.get(keyword), str):
                self._named[f"{base}#{name}"] = part
        if isinstance(name := part.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(name, []).append(part)
        if part.get("$recursiveAnchor") is True:
            self._recursive_anchors.append(part)
        for keyword, value in part.items():
            if keyword not in _DATA:
                self._visit(value, base)


def _walk(part: object, pointer: str) -> object:
    """Returns what a JSON pointer leads to, or None."""
    for step in pointer[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping):
            part = part.get(name)
        elif isinstance(part, list) and name.isascii() and name.isdigit() and len(name) < 9:
            part = part[int(name)] if int(name) < len(part) else None
        else:
            return None
    return part
