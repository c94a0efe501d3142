"""The rooms of the code, and the picture that shows them."""

from pathlib import Path

import pytest
from tools.draw_structures import LIVES, PAGE, PICTURE, ROOT, choose_slots, draw, step_rooms
from tools.rooms import Building, core_building, package_building


@pytest.fixture(scope="module", params=[package_building, core_building], ids=["package", "core"])
def building(request: pytest.FixtureRequest) -> Building:
    return request.param(ROOT)


def test_the_picture_is_that_of_the_code() -> None:
    is_same = (ROOT / PICTURE).read_text() == draw()
    assert is_same, "python -m tools.draw_structures draws it anew"


def test_arrows_point_down(building: Building) -> None:
    floor_of = {room: i for i, floor in enumerate(building.floors) for room in floor}
    for room, below in building.arrows.items():
        assert all(floor_of[room] < floor_of[one] for one in below)


def test_all_arrows_follow_from_those_that_are_drawn(building: Building) -> None:
    drawn = {room: set[str]() for room in building.rooms}
    for upper, lower in building.needed_arrows():
        drawn[upper].add(lower)
    few = Building(
        floors=building.floors,
        arrows={room: frozenset(below) for room, below in drawn.items()},
    )
    for room in building.rooms:
        assert few.reaches(room) == building.reaches(room) - building.for_all


def test_no_drawn_arrow_follows_from_others(building: Building) -> None:
    arrows = building.needed_arrows()
    for upper, lower in arrows:
        others = [one for room, one in arrows if room == upper and one != lower]
        assert not any(lower in building.reaches(one) for one in others)


def test_every_room_has_a_place_of_its_own(building: Building) -> None:
    last = building.floors[-1][0]
    slots = choose_slots(building, 4, last)
    for floor in building.floors:
        assert len({slots[room] for room in floor}) == len(floor)
    assert slots[last] == max(slots[room] for room in building.floors[-1])


@pytest.mark.parametrize("life", LIVES)
def test_steps_are_in_rooms(life: str) -> None:
    rooms = step_rooms((ROOT / PAGE).read_text(), life)
    package, core = package_building(ROOT).rooms, core_building(ROOT).rooms
    assert len(rooms) > 5
    assert set(rooms) <= {*package, *(f"csrc/{room}" for room in core)}


def test_a_step_without_a_file_is_found() -> None:
    with pytest.raises(AssertionError, match="names no file"):
        step_rooms("## A\n1. `src/paredown/serve/app.py`\n2. Nowhere.\n\n## B\n", "A")


def test_imports_between_rooms_are_seen(tmp_path: Path) -> None:
    layers = 'layers = ["paredown.upper", "paredown.middle | paredown.other", "paredown.lower"]'
    (tmp_path / "pyproject.toml").write_text(f"[[tool.importlinter.contracts]]\n{layers}\n")
    texts = {
        "upper": "from paredown.middle.one import x\nfrom paredown import other\n",
        "middle": "def f() -> None:\n    import paredown.lower.two\n",
        "other": "from os import path\n",
        "lower": "",
    }
    for room, text in texts.items():
        folder = tmp_path / "src" / "paredown" / room
        folder.mkdir(parents=True)
        (folder / "file.py").write_text(text)
    found = package_building(tmp_path)
    assert found.floors == (("upper",), ("middle", "other"), ("lower",))
    assert found.arrows == {
        "upper": {"middle", "other"},
        "middle": {"lower"},
        "other": frozenset(),
        "lower": frozenset(),
    }
    assert found.needed_arrows() == [("upper", "middle"), ("upper", "other")]


def test_a_core_whose_rooms_include_each_other_is_refused(tmp_path: Path) -> None:
    for room, other in (("a", "b"), ("b", "a")):
        (tmp_path / "csrc" / room).mkdir(parents=True)
        (tmp_path / "csrc" / room / "file.h").write_text(f'#include "{other}/file.h"\n')
    with pytest.raises(AssertionError, match="include each other"):
        core_building(tmp_path)
