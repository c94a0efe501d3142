"""Every file that a page or a comment names is there."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
# Where a path may begin: pages leave out the folder of the package, and the names of its rooms.
ROOTS = ("src/paredown", "csrc", "tests", "benchmarks", "parity", "tools", "docs", "cmake")
ENDINGS = "py|pyi|h|cpp|md|sh|cmake|toml"
# Names that look like paths: a project, and the folders of $PAREDOWN_DATA.
OTHERS = {
    *(
        "llama.cpp",
        "ik_llama.cpp",
        "ggml-org/llama.cpp",
        "unslothai/llama.cpp",
        "tests/__init__.py",
    ),
    *("text/", "traces/", "configs/", "perf_tables/"),
}

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(rf"(?<![\w./$~<*-])((?:[\w-]+/)*[\w-]+\.(?:{ENDINGS}))(?![\w-]|\.\w)")
FOLDER = re.compile(r"`((?:[\w-]+/)+)`")
# What code names may lie in another project: only paths into our own rooms are checked there.
ROOMS = {path.name for path in (ROOT / "src" / "paredown").iterdir() if path.is_dir()}
LINK = re.compile(r"\]\(([^)#\s]+)\)")


@cache
def tree() -> tuple[set[str], set[str]]:
    """Files, and folders that end in a slash, below the root."""
    files = {str(path) for path in map(relative, walk(ROOT))}
    folders = {f"{parent}/" for name in files for parent in Path(name).parents}
    return files, folders


def relative(path: Path) -> Path:
    return path.relative_to(ROOT)


def walk(folder: Path) -> list[Path]:
    """The files of the rooms and those beside them, without what is built."""
    rooms = [ROOT / name for name in (*ROOTS, "src")]
    found = [path for room in rooms for path in room.rglob("*") if path.is_file()]
    return [*found, *(path for path in folder.iterdir() if path.is_file())]


def is_there(named: str, names: set[str]) -> bool:
    """Whether the tree has it, under its whole path or one whose first folders are left out."""
    return any(name == named or name.endswith(f"/{named}") for name in names)


def missing(text: str, page: Path) -> list[str]:
    files, folders = tree()
    prose = FENCED.sub("", text)
    links = LINK.findall(prose)
    lost = [one for one in links if "://" not in one and not (page.parent / one).exists()]
    for pattern, names in ((NAMED, files), (FOLDER, folders)):
        named = sorted(set(pattern.findall(prose)) - OTHERS)
        lost += [one for one in named if not is_there(one, names)]
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert not missing(page.read_text(), page)


@pytest.mark.parametrize("room", ["src", "csrc"])
def test_what_code_names_is_there(room: str) -> None:
    lost = []
    for path in sorted((ROOT / room).rglob("*")):
        if path.suffix in {".py", ".h", ".cpp"}:
            named = set(NAMED.findall(path.read_text()))
            own = [one for one in named if one.split("/")[0] in ROOMS | {"docs", "tests", "csrc"}]
            lost += [(path.name, one) for one in own if not is_there(one, tree()[0])]
    assert not lost


def test_a_path_that_is_gone_is_found() -> None:
    page = ROOT / "docs" / "page.md"
    text = "See `engine/worker.py`, docs/gone.md, `gone.py`, `cli/gone/` and [a page](gone.png)."
    assert missing(text, page) == ["gone.png", "docs/gone.md", "gone.py", "cli/gone/"]
    there = "See `engine/worker.py`, docs/internals/engine.md, README.md, `cli/verbs/`."
    assert not missing(there, page)
