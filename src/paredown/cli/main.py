"""`paredown`: the command line. One verb per file, imported only when it is asked for."""

import argparse
import importlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from paredown.errors import ParedownError

# Each verb is the module paredown.cli.<verb>, with the two functions of `Verb`.
VERBS: dict[str, str] = {
    "optimize": "try compressions, measure each on this machine, write the best checkpoint",
    "compress": "run one recipe over a checkpoint",
    "eval": "perplexity, KL divergence and top-1 agreement",
    "generate": "continue prompts",
    "chat": "talk to a model that has a chat template",
    "serve": "answer over HTTP as the OpenAI API does",
    "bench": "decode and prefill speed, beside the machine's limit",
    "doctor": "this machine: instruction sets, kernels chosen, measured limits",
}
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
# Modules that come with an extra, and the extra.
EXTRAS = {"torch": "compress", "matplotlib": "compress"}

EXAMPLES = """examples:
  paredown optimize                        compress the built-in model, show what it costs
  paredown optimize my-model -o smaller    the same for a Hugging Face checkpoint folder
  paredown generate "Once upon a time"     let the built-in model go on
  paredown serve smaller --port 8000       serve it

`paredown VERB --help` shows the options of a verb, with examples."""


class Verb(Protocol):
    """What a verb's module offers. `run` prints and returns the exit code."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class UsageError(ParedownError):
    """The words on the command line make no sense."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, seen=" ".join(sys.argv[1:]), remedy=f"Try `{self.prog} --help`.")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb. The exit code is 2 for bad input, 130 when interrupted, 141 when nobody reads
    the output any more, else the verb's own."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            code = _run(words)
        except ParedownError as error:
            code = _report(error, as_json="--json" in words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more at its end; that goes nowhere and does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help_text())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"paredown {importlib.metadata.version('paredown')}")
        return 0
    name, *rest = words
    if name not in VERBS:
        raise UsageError(
            "there is no such verb", seen=name, remedy=f"The verbs are {', '.join(VERBS)}."
        )
    verb = _import_verb(name)
    parser = _Parser(
        prog=f"paredown {name}",
        description=VERBS[name][0].upper() + VERBS[name][1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(rest))


def _import_verb(name: str) -> Verb:
    try:
        return cast(Verb, importlib.import_module(f"paredown.cli.{name}"))
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise UsageError(
            f"`paredown {name}` needs {error.name}, which is not installed",
            seen=f"no module {error.name}",
            remedy=f"pip install 'paredown[{EXTRAS[error.name]}]'",
        ) from error


def _help_text() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {text}" for name, text in VERBS.items())
    return (
        "usage: paredown VERB [MODEL] [options]\n\n"
        "Compress a language model, prove what it cost, and serve it. MODEL is a checkpoint\n"
        "folder; without it, the model that comes with the package.\n\n"
        f"verbs:\n{verbs}\n\n{EXAMPLES}"
    )


def _report(error: ParedownError, *, as_json: bool) -> int:
    print(f"paredown: {error}", file=sys.stderr)
    if as_json:
        body = {
            "type": type(error).__name__,
            "message": str(error),
            "what": error.what,
            "seen": str(error.seen),
            "remedy": error.remedy,
        }
        print(json.dumps({"error": body}))
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
