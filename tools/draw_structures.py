"""Draws docs/structures.svg: the rooms, their imports, and the paths of a request and a weight.

    python -m tools.draw_structures

Rooms and arrows come from the code (tools/rooms.py), steps from the numbered lists of
docs/structures.md. A step belongs to the room of the first path that it names.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import permutations
from pathlib import Path

from tools.rooms import Building, core_building, package_building

ROOT = Path(__file__).parent.parent
PAGE = Path("docs/structures.md")
PICTURE = Path("docs/structures.svg")
LIVES = ("The life of a request", "The life of a weight")

WIDTH = 860
FLOOR_HEIGHT = 64
BOX_WIDTH, BOX_HEIGHT = 104, 34
SLOT_WIDTH = 128
TOP = 64
PACKAGE_LEFT, PACKAGE_SLOTS = 24, 4
CORE_LEFT, CORE_SLOTS = 590, 2
COLORS = ("#1f6feb", "#c2570c")
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2328;text-anchor:middle}"
    ".left{text-anchor:start}.title{font-weight:600}.step{font-size:11px;fill:#fff}"
    ".floor{fill:#6e7781;font-size:12px}rect.room{fill:#fff;stroke:#57606a}"
    ".arrow{stroke:#8c959f;fill:none}"
)

Slots = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A building with a place for each of its rooms, starting at `left` and at floor
    `top_floor`."""

    building: Building
    slots: Mapping[str, int]
    left: int
    top_floor: int

    def middle(self, room: str) -> tuple[int, int]:
        floor = next(i for i, rooms in enumerate(self.building.floors) if room in rooms)
        x = self.left + SLOT_WIDTH * self.slots[room] + SLOT_WIDTH // 2
        return x, TOP + FLOOR_HEIGHT * (self.top_floor + floor) + BOX_HEIGHT // 2


def step_rooms(page: str, life: str) -> list[str]:
    """Returns the room of each step: its name in the package, or `csrc/` and its name in the
    core."""
    section = page.split(f"## {life}\n", 1)[1].split("\n## ", 1)[0]
    rooms = []
    for step in re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]:
        named = re.search(r"`(?:src/paredown/(\w+)|csrc/(\w+))", step)
        assert named is not None, f"a step names no file: {step}"
        rooms.append(named[1] or f"csrc/{named[2]}")
    return rooms


def choose_slots(building: Building, num_slots: int, last: str = "") -> Slots:
    """Chooses places that keep arrows short and behind few rooms, with `last` at the right of its
    floor. Floors are tried in turn."""
    slots = {room: i for floor in building.floors for i, room in enumerate(floor)}
    arrows = building.needed_arrows()
    for _ in range(6):
        for floor in building.floors:
            options = [
                dict(zip(floor, places, strict=True))
                for places in permutations(range(num_slots), len(floor))
            ]
            if last in floor:
                options = [one for one in options if one[last] == max(one.values())]
            slots = min((slots | one for one in options), key=partial(_cost, building, arrows))
    return slots


def _cost(building: Building, arrows: Iterable[tuple[str, str]], slots: Slots) -> float:
    floor_of = {room: i for i, floor in enumerate(building.floors) for room in floor}
    cost = 0.0
    for upper, lower in arrows:
        begin, end = floor_of[upper], floor_of[lower]
        rise = (slots[lower] - slots[upper]) / (end - begin)
        cost += abs(slots[lower] - slots[upper]) ** 2
        for i in range(begin + 1, end):
            place = slots[upper] + rise * (i - begin)
            cost += sum(10 for room in building.floors[i] if abs(slots[room] - place) < 0.8)
    return cost


def draw(root: Path = ROOT) -> str:
    """Returns the picture as SVG."""
    package, core = package_building(root), core_building(root)
    num_floors = len(package.floors)
    panels = {
        "": Panel(
            building=package,
            slots=choose_slots(package, PACKAGE_SLOTS, _binding(root)[0]),
            left=PACKAGE_LEFT,
            top_floor=0,
        ),
        "csrc/": Panel(
            building=core,
            slots=choose_slots(core, CORE_SLOTS),
            left=CORE_LEFT,
            top_floor=num_floors - len(core.floors),
        ),
    }
    places = {
        prefix + room: panel.middle(room)
        for prefix, panel in panels.items()
        for room in panel.building.rooms
    }
    arrows = [
        (prefix + upper, prefix + lower)
        for prefix, panel in panels.items()
        for upper, lower in panel.building.needed_arrows()
    ]
    arrows.append(_binding(root))
    page = (root / PAGE).read_text()
    parts = [_arrow(places[upper], places[lower]) for upper, lower in arrows]
    parts += [_room(name, place) for name, place in places.items()]
    for number, life in enumerate(LIVES):
        parts += _markers(step_rooms(page, life), places, number)
    return _document(parts, num_floors, places)


def _binding(root: Path) -> tuple[str, str]:
    """Returns an arrow from the room with the types of the core's module to the room that makes
    it."""
    (types,) = (root / "src" / "paredown").rglob("_core.pyi")
    return types.parent.name, "csrc/binding"


def _arrow(begin: tuple[int, int], end: tuple[int, int]) -> str:
    y1, y2 = begin[1] + BOX_HEIGHT // 2, end[1] - BOX_HEIGHT // 2 - 4
    if y2 < y1:  # beside it, in the other panel
        x1, x2 = begin[0] + BOX_WIDTH // 2, end[0] - BOX_WIDTH // 2 - 4
        return f'<path class="arrow" marker-end="url(#tip)" d="M{x1} {begin[1]}L{x2} {end[1]}"/>'
    return f'<path class="arrow" marker-end="url(#tip)" d="M{begin[0]} {y1}L{end[0]} {y2}"/>'


def _room(name: str, place: tuple[int, int]) -> str:
    x, y = place
    box = f'x="{x - BOX_WIDTH // 2}" y="{y - BOX_HEIGHT // 2}"'
    size = f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
    title = escape(name.removeprefix("csrc/"))
    return f'<rect class="room" rx="6" {box} {size}/><text x="{x}" y="{y + 5}">{title}</text>'


def _markers(rooms: list[str], places: Mapping[str, tuple[int, int]], life: int) -> list[str]:
    """Draws a request's steps along the upper edge of their room, and a weight's along the
    lower."""
    parts, num_in = [], dict.fromkeys(places, 0)
    for step, room in enumerate(rooms, 1):
        x = places[room][0] - BOX_WIDTH // 2 + 10 + 19 * num_in[room]
        y = places[room][1] + (BOX_HEIGHT // 2 if life else -BOX_HEIGHT // 2)
        num_in[room] += 1
        parts.append(_marker(x, y, life, str(step)))
    return parts


def _marker(x: int, y: int, life: int, text: str) -> str:
    fill = f'fill="{COLORS[life]}"'
    shape = f'<rect x="{x - 8}" y="{y - 8}" width="16" height="16" rx="2" {fill}/>'
    if not life:
        shape = f'<circle cx="{x}" cy="{y}" r="8.5" {fill}/>'
    return f'{shape}<text class="step" x="{x}" y="{y + 4}">{text}</text>'


def _document(parts: list[str], num_floors: int, places: Mapping[str, tuple[int, int]]) -> str:
    height = TOP + FLOOR_HEIGHT * num_floors + 76
    core_top = places["csrc/binding"][1] - BOX_HEIGHT // 2
    legend_y = height - 52
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Rooms, imports, and the lives of a request and a weight</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" markerWidth="7" markerHeight="7" refX="4" refY="3.5" orient="auto">'
        '<path d="M0 0L7 3.5L0 7z" fill="#8c959f"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#f6f8fa" rx="8"/>',
        f'<text class="left title" x="{PACKAGE_LEFT}" y="32">src/paredown</text>',
        f'<text class="left title" x="{CORE_LEFT}" y="{core_top - 32}">csrc</text>',
    ]
    floors = [
        f'<text class="floor" x="12" y="{TOP + FLOOR_HEIGHT * i + 21}">{num_floors - 1 - i}</text>'
        for i in range(num_floors)
    ]
    legend = [
        _marker(40, legend_y, 0, "1"),
        f'<text class="left" x="54" y="{legend_y + 5}">{LIVES[0]}</text>',
        _marker(250, legend_y, 1, "1"),
        f'<text class="left" x="264" y="{legend_y + 5}">{LIVES[1]}</text>',
        _arrow_in_legend(32, legend_y + 30),
        f'<text class="left" x="82" y="{legend_y + 35}">imports or includes; left out are '
        "arrows that follow from others, and those to floor 0</text>",
    ]
    return "\n".join([*head, *floors, *parts, *legend, "</svg>"]) + "\n"


def _arrow_in_legend(x: int, y: int) -> str:
    return f'<path class="arrow" marker-end="url(#tip)" d="M{x} {y}L{x + 38} {y}"/>'


if __name__ == "__main__":
    (ROOT / PICTURE).write_text(draw())
