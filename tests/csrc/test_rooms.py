"""The rooms of the native core: what one includes of another only ever points down."""

import re
from pathlib import Path

CSRC = Path(__file__).parent.parent.parent / "csrc"

# From the top; rooms on one floor do not know each other.
FLOORS = (
    ("fuzz",),
    ("binding", "check"),
    ("model", "retrieve"),
    ("sampling", "weights"),
    ("kernels",),
    ("simd",),
    ("machine",),
)
MAX_ARROWS = 28

INCLUDE = re.compile(r'#include "(\w+)/')


def rooms() -> dict[str, int]:
    """The floor of each room, counted from the top."""
    return {room: floor for floor, names in enumerate(FLOORS) for room in names}


def arrows(folder: Path) -> dict[tuple[str, str], list[str]]:
    """The files that include from another room, by the two rooms."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix not in {".h", ".cpp"}:
            continue
        room = path.relative_to(folder).parts[0]
        for included in INCLUDE.findall(path.read_text()):
            if included != room:
                found.setdefault((room, included), []).append(path.name)
    return found


def upward(found: dict[tuple[str, str], list[str]]) -> dict[tuple[str, str], list[str]]:
    floors = rooms()
    return {arrow: files for arrow, files in found.items() if floors[arrow[0]] >= floors[arrow[1]]}


def test_every_file_is_in_a_room() -> None:
    assert {path.name for path in CSRC.iterdir()} == set(rooms())


def test_no_include_points_up_or_across() -> None:
    assert not upward(arrows(CSRC))


def test_there_are_few_arrows_between_rooms() -> None:
    found = arrows(CSRC)
    assert len(found) <= MAX_ARROWS, sorted(found)


def test_an_include_that_points_up_is_found(tmp_path: Path) -> None:
    (tmp_path / "kernels" / "linear").mkdir(parents=True)
    (tmp_path / "weights").mkdir()
    text = '#include <vector>\n#include "kernels/math.h"\n#include "model/model.h"\n'
    (tmp_path / "kernels" / "linear" / "tiles.h").write_text(text)
    (tmp_path / "weights" / "names.h").write_text(text.replace("model/", "sampling/"))
    assert upward(arrows(tmp_path)) == {
        ("kernels", "model"): ["tiles.h"],
        ("weights", "sampling"): ["names.h"],
    }
