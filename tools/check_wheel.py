"""Builds the sdist and a wheel, installs the wheel as a stranger would, and runs it there.

`python -m tools.check_wheel` (or `make wheel`) builds both into `dist/`, tags the wheel with the
oldest glibc that its symbols need, and puts it into a fresh environment. There, without a compiler
on PATH, it runs the quick start, `generate` and `serve`. A table of figures is the outcome; the
exit code is 1 where one misses its bound. The packages that the wheel needs come from an index.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.installed_wheel import InstalledWheel

ROOT = Path(__file__).parent.parent
MAX_WHEEL_BYTES = 25_000_000
MAX_ENVIRONMENT_BYTES = 220_000_000
# What an sdist may hold: what is needed to build, and what tells whose it is.
SDIST_NAMES = {
    "CMakeLists.txt",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "csrc",
    "pyproject.toml",
    "src",
}
_GLIBC = re.compile(rb"GLIBC_(\d+)\.(\d+)")
_TAG = re.compile(r"manylinux_(\d+)_(\d+)")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """`bound` is the most that `value` may be; None where it is told alone."""

    name: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def holds(self) -> bool:
        return self.bound is None or self.value <= self.bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where both files go")
    parser.add_argument("--wheel", type=Path, help="check this wheel, and build none")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of scikit-build-core, such as wheel.py-api= for no stable ABI",
    )
    args = parser.parse_args()
    wheel = args.wheel or build(args.output, args.setting)
    figures = [*wheel_figures(wheel), *installed_figures(wheel)]
    if args.json:
        print(json.dumps({"wheel": wheel.name, "figures": [asdict(one) for one in figures]}))
    else:
        print(as_table(wheel.name, figures))
    return 0 if all(one.holds for one in figures) else 1


def build(output: Path, settings: Iterable[str]) -> Path:
    """Builds the sdist, and from it the wheel, which auditwheel tags. Returns the wheel's path."""
    shutil.rmtree(output, ignore_errors=True)
    words = ["--config-setting=cmake.define.PAREDOWN_STATIC_RUNTIME=ON"]
    words += [f"--config-setting={setting}" for setting in settings]
    with tempfile.TemporaryDirectory(prefix="paredown-wheel-") as folder:
        run_python("build", "--outdir", folder, *words, str(ROOT))
        (sdist,) = Path(folder).glob("*.tar.gz")
        (plain,) = Path(folder).glob("*.whl")
        check_sdist(sdist)
        # Nothing is grafted: what a wheel of ours needs is glibc's.
        repair = ["repair", "--plat", "auto", "--wheel-dir", str(output), str(plain)]
        run_python("auditwheel", *repair)
        shutil.move(sdist, output / sdist.name)
    (wheel,) = output.glob("*.whl")
    return wheel


def check_sdist(sdist: Path) -> None:
    """Raises AssertionError where the sdist holds what nobody needs to build."""
    with tarfile.open(sdist) as archive:
        names = {name.split("/")[1] for name in archive.getnames() if "/" in name}
        assert names == SDIST_NAMES, f"{sdist.name} holds {sorted(names ^ SDIST_NAMES)}"
        built = [name for name in archive.getnames() if name.endswith((".so", ".pyc", ".o"))]
        assert not built, f"{sdist.name} holds {built[:3]}"


def wheel_figures(wheel: Path) -> list[Figure]:
    """How large it is, and which glibc it needs beside the one that its tag promises."""
    tags = [(int(major), int(minor)) for major, minor in _TAG.findall(wheel.name)]
    assert tags, f"{wheel.name} holds machine code and no manylinux tag"
    needed = needed_glibc(wheel)
    assert needed <= max(tags), f"{wheel.name} needs glibc {needed}"
    size, promised = wheel.stat().st_size, max(tags)[1]
    return [
        Figure(name="wheel", value=size / 1e6, unit="MB", bound=MAX_WHEEL_BYTES / 1e6),
        Figure(name="glibc 2.x that its symbols need", value=needed[1], unit="", bound=promised),
    ]


def needed_glibc(wheel: Path) -> tuple[int, int]:
    """The newest version of glibc's symbols that a library of the wheel asks for."""
    found = [(0, 0)]
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".so" in name:
                asked = _GLIBC.findall(archive.read(name))
                found += [(int(major), int(minor)) for major, minor in asked]
    return max(found)


def installed_figures(wheel: Path) -> list[Figure]:
    """Installs the wheel in a fresh environment and runs it there."""
    with tempfile.TemporaryDirectory(prefix="paredown-stranger-") as folder:
        begin_s = time.perf_counter()
        installed = InstalledWheel.install(wheel, Path(folder))
        install_s = time.perf_counter() - begin_s
        installed.check_libraries()
        first_text_s = min(installed.first_text_s() for _ in range(3))
        installed.run_quick_start()
        served_s = installed.serve_one()
        return [
            Figure(name="installing it, downloads included", value=install_s, unit="s"),
            Figure(
                name="serving environment",
                value=installed.num_bytes() / 1e6,
                unit="MB",
                bound=MAX_ENVIRONMENT_BYTES / 1e6,
            ),
            Figure(name="first text, from the command on", value=first_text_s, unit="s"),
            Figure(name="first completion by HTTP, from the command on", value=served_s, unit="s"),
        ]


def run_python(module: str, *words: str) -> None:
    """Runs a tool of this Python's environment; its own output shows how far it is."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", module, *words]
    subprocess.run(command, check=True, stdout=sys.stderr, env=environment)


def as_table(title: str, figures: Iterable[Figure]) -> str:
    lines = [title, f"{'':46} {'value':>9} {'at most':>9}"]
    for one in figures:
        bound = "" if one.bound is None else f"{one.bound:9.6g}"
        mark = "" if one.holds else "  MISSED"
        lines.append(f"{one.name:46} {one.value:9.4g} {bound:>9} {one.unit}{mark}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
