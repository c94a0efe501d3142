"""Reads a recipe's YAML with limits: a recipe is short, and anybody may have written it.

It accepts mappings, lists, texts, numbers, true, false and null. Anchors and aliases are refused:
a few hundred bytes of them can stand for more values than memory holds. Tags and repeated keys are
refused too. A date is a text.
"""

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

# The mixed recipe of a large model with experts has a line for each of its linear layers.
MAX_BYTES = 4_000_000
MAX_DEPTH = 16
# PyYAML needs a second or two for these.
MAX_VALUES = 100_000
# The longest number in a recipe is a count of columns.
MAX_NUMBER_CHARS = 40
_DATE = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# None stands for all other tags, which are refused.
_KNOWN = {None} | {
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")
}


class RecipeYamlError(ValueError):
    """One line that says what is wrong, with line and column."""


def parse_yaml(data: bytes) -> object:
    """Returns the document's contents. Raises RecipeYamlError."""
    if len(data) > MAX_BYTES:
        raise RecipeYamlError(f"{len(data):,} bytes of YAML, at most {MAX_BYTES:,}")
    try:
        return yaml.load(data.decode("utf-8-sig"), _Loader)
    except UnicodeDecodeError as error:
        raise RecipeYamlError(f"byte {error.start} is not UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        context = "" if error.context is None else f"{error.context}, "
        raise RecipeYamlError(f"{where}{context}{error.problem or 'this is not YAML'}") from error
    except yaml.YAMLError as error:
        raise RecipeYamlError(" ".join(str(error).split())) from error


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._num_values = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(
                problem="anchors and aliases are not read here", problem_mark=event.start_mark
            )
        if self._depth == MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_DEPTH} levels", problem_mark=event.start_mark
            )
        if self._num_values == MAX_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_VALUES:,} values", problem_mark=event.start_mark
            )
        self._num_values += 1
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        is_number = isinstance(node, ScalarNode) and node.tag in _NUMBERS
        if is_number and len(node.value) > MAX_NUMBER_CHARS:
            raise yaml.MarkedYAMLError(
                problem=f"a number of more than {MAX_NUMBER_CHARS} digits",
                problem_mark=node.start_mark,
            )
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise yaml.MarkedYAMLError(
                problem="this value cannot be read", problem_mark=node.start_mark
            ) from error

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, str(key.value)) if isinstance(key, ScalarNode) else None
            if name in seen:
                raise yaml.MarkedYAMLError(
                    problem="this key is there already", problem_mark=key.start_mark
                )
            if name is not None:
                seen.add(name)
        return super().construct_mapping(node, deep=deep)


# Plain texts are not taken for dates, nor for merge keys.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag not in (_DATE, _MERGE)]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.yaml_constructors = {
    tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in _KNOWN
}
