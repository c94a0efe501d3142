"""Reads the rooms of the package and of the native core, and their imports, from the code."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "paredown"
_INCLUDE = re.compile(r'^#(?:include|define)\b.*"(\w+)/', re.MULTILINE)

Arrows = Mapping[str, frozenset[str]]


@dataclass(frozen=True, kw_only=True)
class Building:
    """Floors of rooms, the highest first, and the imports of each room. Rooms in `for_all` are on
    the lowest floor and may be imported by all."""

    floors: tuple[tuple[str, ...], ...]
    arrows: Arrows
    for_all: frozenset[str] = frozenset()

    @property
    def rooms(self) -> tuple[str, ...]:
        return tuple(room for floor in self.floors for room in floor)

    def reaches(self, room: str) -> set[str]:
        """Returns everything that a room imports, directly or indirectly."""
        found: set[str] = set()
        open_rooms = list(self.arrows[room])
        while open_rooms:
            one = open_rooms.pop()
            if one not in found:
                found.add(one)
                open_rooms += self.arrows[one]
        return found

    def needed_arrows(self) -> list[tuple[str, str]]:
        """Returns the arrows that imply all others, without those to rooms in `for_all`."""
        found = []
        for room in self.rooms:
            for one in sorted(self.arrows[room] - self.for_all):
                if not any(one in self.reaches(other) for other in self.arrows[room]):
                    found.append((room, one))
        return found


def package_building(root: Path) -> Building:
    """Returns the package; its floors are those of the contract in pyproject.toml."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    layers: list[str] = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    floors = tuple(
        tuple(room.strip().removeprefix(f"{PACKAGE}.") for room in layer.split("|"))
        for layer in layers
    )
    arrows: dict[str, set[str]] = {room: set() for floor in floors for room in floor}
    source = root / "src" / PACKAGE
    for path in sorted(source.rglob("*.py")):
        room = path.relative_to(source).parts[0].removesuffix(".py")
        if room in arrows:
            arrows[room] |= {one for one in _imported_rooms(path) if one in arrows} - {room}
    return Building(floors=floors, arrows=_frozen(arrows), for_all=frozenset(floors[-1]))


def core_building(root: Path) -> Building:
    """Returns the native core; a room is one floor above the highest room that it includes."""
    source = root / "csrc"
    arrows: dict[str, set[str]] = {path.name: set() for path in sorted(source.iterdir())}
    for path in sorted(source.rglob("*")):
        if path.suffix in {".h", ".cpp"}:
            room = path.relative_to(source).parts[0]
            named = set(_INCLUDE.findall(path.read_text()))
            arrows[room] |= (named & arrows.keys()) - {room}
    floors: list[list[str]] = []
    left = dict(arrows)
    while left:
        floor = [room for room, below in left.items() if not below & left.keys()]
        assert floor, f"rooms include each other: {sorted(left)}"
        floors.append(floor)
        left = {room: below for room, below in left.items() if room not in floor}
    return Building(floors=tuple(map(tuple, reversed(floors))), arrows=_frozen(arrows))


def _frozen(arrows: Mapping[str, set[str]]) -> Arrows:
    return {room: frozenset(below) for room, below in arrows.items()}


def _imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            names = [f"{PACKAGE}.{one.name}" for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            if name.startswith(f"{PACKAGE}."):
                yield name.split(".")[1]
