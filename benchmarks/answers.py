"""Checks whether two builds give the same answers: the bits of files, golden logits and tokens.

    python -m benchmarks.answers HEAD~1
    python -m benchmarks.answers v0.1 --after HEAD --recipes int4-g32 awq-gptq-int4-g128

Both builds compress the packaged model by each recipe, convert what they wrote, and generate from
every folder and file. What differs is printed, and the exit status is then 1. Of a verification
the figures, the hashes of files and that of the golden logits are compared; sentences, versions and
times are not. Without --after the later build is what is installed here.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.build import ROOT, Build
from benchmarks.commit_build import build_of, commit_id
from paredown.errors import ConfigError, ParedownError

EXIT_DIFFERENT = 1
EXIT_BAD_INPUT = 2
COMMAND = "paredown.cli.main"
RECIPES = (
    *("bf16", "int8", "int4-g32", "int4-g128-asym", "int3-g32-asym", "w8a8", "w8a8-static"),
    *("fp8", "fp8-g128", "w4a8-g32-qoq", "llm-int8", "smoothquant-o1", "gptq-int4-g32"),
    *("awq-gptq-int4-g128", "hqq-int4-g32", "gptq-w4a8-g128-asym-qoq", "aqlm-2x8-g8"),
    *("int4-g128-head-int8-kv-int8", "int8-kv-fp8-static"),
)
# A conversion is named by its source and its target.
CONVERSIONS = (
    ("bf16", "gguf-f16"),
    ("bf16", "gguf-q8_0"),
    ("bf16", "gguf-q4_0"),
    ("int4-g32", "gguf"),
    ("int4-g128-asym", "awq"),
    ("int4-g128-asym", "bf16"),
    ("llm-int8", "bitsandbytes"),
    ("gptq-int4-g32", "gptq"),
    ("gptq-int4-g32", "gptq-v2"),
    ("gptq-int4-g32.gptq", "compressed-tensors"),
)
COMPRESSING = ("--samples", "8", "--calibration-tokens", "128", "--tokens", "512")
PROMPT = "Once upon a time"
GENERATING = ("--max-tokens", "24", "--temperature", "0")
VERIFICATION = "verification.json"
GENERATED = "generated.json"
# Sentences, versions, and the program's own hash.
NOT_COMPARED = ("/notes", "/versions", "/fingerprint/golden/arithmetic")
ERROR_CHARACTERS = 600


class AnswerError(ParedownError):
    """A build could not do what was asked."""


def answers(build: Build, folder: Path, recipes: Sequence[str]) -> dict[str, str]:
    """Returns the digest of everything that a build writes below the absolute path `folder`, by
    name. Raises AnswerError."""
    for recipe in recipes:
        print(f"compress {recipe}", file=sys.stderr, flush=True)
        made = str(folder / recipe)
        _run(build, "compress", "-o", made, "--recipe", recipe, *COMPRESSING)
    for source, target in CONVERSIONS:
        if source.split(".")[0] in recipes:
            print(f"convert {source} to {target}", file=sys.stderr, flush=True)
            suffix = ".gguf" if target.startswith("gguf") else ""
            made = str(folder / f"{source}.{target}{suffix}")
            _run(build, "convert", str(folder / source), "-o", made, "--to", target)
    for model in _models(folder):
        words = ["generate", "--model", str(model), *GENERATING, "--json", PROMPT]
        (folder / f"{model.name}.{GENERATED}").write_text(_run(build, *words))
    return {
        str(path.relative_to(folder)): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differences(earlier: Mapping[str, str], later: Mapping[str, str]) -> list[str]:
    """Returns what only one of the builds wrote, and what they wrote differently."""
    names = sorted(earlier.keys() | later.keys())
    return [name for name in names if earlier.get(name) != later.get(name)]


def _models(folder: Path) -> list[Path]:
    return [one for one in sorted(folder.iterdir()) if one.is_dir() or one.suffix == ".gguf"]


def _run(build: Build, *words: str) -> str:
    # One thread, because PyTorch's sums depend on their number.
    settings = {"OMP_NUM_THREADS": "1", "PAREDOWN_CACHE": "off"}
    done = subprocess.run(
        build.command(COMMAND, *words),
        cwd=build.tree,
        env=build.environment(settings),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AnswerError(
            f"`paredown {' '.join(words)}` ended with status {done.returncode}",
            seen=done.stderr.strip()[-ERROR_CHARACTERS:],
            remedy="Leave out recipes that one of the builds does not know (--recipes).",
        )
    return done.stdout


def _digest(path: Path) -> str:
    content = path.read_bytes()
    if path.name.endswith(VERIFICATION):
        content = _dumped(dict(_measured(json.loads(content))))
    elif path.name.endswith(GENERATED):
        content = _dumped(json.loads(content)["completions"])
    return hashlib.sha256(content).hexdigest()


def _dumped(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _measured(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yields the numbers and hashes of a verification with their paths in it."""
    if name in NOT_COMPARED:
        return
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _measured(one, f"{name}/{key}")
    elif name.startswith("/fingerprint/") or not isinstance(value, str):
        yield name, value


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("earlier", metavar="COMMIT", help="the earlier build, as git names it")
    parser.add_argument("--after", metavar="COMMIT", help="the later one (default: installed here)")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "bench")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all digests")
    return parser.parse_args()


def compare(args: argparse.Namespace) -> list[str]:
    """Prints the number of answers and returns the names of those that differ. Raises ConfigError,
    BuildError or AnswerError."""
    if len(set(args.recipes)) < len(args.recipes):
        raise ConfigError(
            "a recipe is there twice", seen=" ".join(args.recipes), remedy="Name each once."
        )
    commits = [None if ref is None else commit_id(ref) for ref in (args.earlier, args.after)]
    folder = args.folder.resolve()
    builds = [build_of(commit, folder / "commits") for commit in commits]
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for build in builds:
        with tempfile.TemporaryDirectory(dir=folder) as work:
            found.append(answers(build, Path(work), args.recipes))
    different = differences(*found)
    print(f"{len(found[0].keys() | found[1].keys())} answers, {len(different)} of them differ")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return different


def main() -> int:
    try:
        different = compare(parse_arguments())
    except ParedownError as error:
        print(f"answers: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    for name in different:
        print(f"differs: {name}")
    return EXIT_DIFFERENT if different else 0


if __name__ == "__main__":
    sys.exit(main())
