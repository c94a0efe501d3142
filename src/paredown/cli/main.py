"""`paredown`: the command line. Each verb has its own file, imported only on use."""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

import paredown
from paredown.cli.printed import say, say_json, say_own, tell
from paredown.cli.stop_signals import stop_signals_raise
from paredown.cli.streams import prepare_streams
from paredown.errors import OutputError, ParedownError
from paredown.installation import explain
from paredown.stopped import StoppedError

# Each verb is the module paredown.cli.<verb>, with the two functions of `Verb`.
VERBS: dict[str, str] = {
    "optimize": "try compressions, measure each on this machine, write the best checkpoint",
    "compress": "run one recipe over a checkpoint",
    "distill": "train a smaller student to do what its teacher does",
    "synthesize": "training data from a teacher that is asked over HTTP",
    "convert": "write a checkpoint in another format, with the same weights",
    "eval": "perplexity, KL divergence and top-1 agreement",
    "sensitivity": "which parts suffer most from being quantized, in a table and a picture",
    "mixed": "a width for each linear layer under a budget, as a recipe file",
    "generate": "continue prompts",
    "chat": "talk to a model that has a chat template",
    "serve": "answer over HTTP as the OpenAI API does",
    "bench": "latency, throughput and goodput under load, beside the machine's limits",
    "inspect": "where time and memory of a model go, by arithmetic; the roofline of a machine",
    "plan": "how many machines a load needs, in which format, and what it costs",
    "simulate": "a load on machines of any kind, through the scheduler that serves",
    "doctor": "this machine: instruction sets, kernels chosen, measured limits",
}
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
# The system's errors when a file, or stdout, can take no more.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

EXAMPLES = """examples:
  paredown optimize                        compress the built-in model, show what it costs
  paredown optimize my-model -o smaller    the same for a Hugging Face checkpoint folder
  paredown serve org/name                  serve a model of the Hugging Face hub
  paredown generate "Once upon a time"     let the built-in model go on
  paredown serve smaller --port 8000       serve it

`paredown VERB --help` shows the options of a verb, with examples."""


class Verb(Protocol):
    """The functions of a verb's module. `run` prints and returns the exit code."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class UsageError(ParedownError):
    """The command line cannot be understood."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, seen=" ".join(sys.argv[1:]), remedy=f"Try `{self.prog} --help`.")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code: 2 for bad input or a full disk, 130 when
    interrupted, 128 plus the signal when stopped by one, 141 when nobody reads the output. Any
    other code is the verb's own."""
    words = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    try:
        with stop_signals_raise():
            try:
                code = _run(words)
            except ParedownError as error:
                code = _report(error, as_json="--json" in words)
            except ImportError as error:
                code = _report(explain(error), as_json="--json" in words)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        tell("")
        tell("interrupted")
        return EXIT_INTERRUPTED
    except StoppedError as error:
        tell("")
        tell(str(error))
        return error.exit_code
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        _discard_stdout()
        remedy = "Free some space, or write to another place."
        return _report(
            OutputError("the output could not be written", seen=error, remedy=remedy), as_json=False
        )


def _discard_stdout() -> None:
    """Redirects stdout to nowhere, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        say_own(_help_text())
        return 0
    if words[0] in ("-V", "--version"):
        say(f"paredown {paredown.__version__}")
        return 0
    name, *rest = words
    if name not in VERBS:
        raise UsageError(
            "there is no such verb", seen=name, remedy=f"The verbs are {', '.join(VERBS)}."
        )
    verb = cast(Verb, importlib.import_module(f"paredown.cli.verbs.{name}"))
    # Imported late: help and a wrong verb need none of it.
    log_lines = importlib.import_module("paredown.cli.log_lines")
    log_lines.escape_logs_and_traces()
    parser = _Parser(
        prog=f"paredown {name}",
        description=VERBS[name][0].upper() + VERBS[name][1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(rest))


def _help_text() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {text}" for name, text in VERBS.items())
    return (
        "usage: paredown VERB [MODEL] [options]\n\n"
        "Compress a language model, prove what it cost, and serve it. MODEL is a checkpoint\n"
        "folder or a .gguf file; without it, the model that comes with the package.\n\n"
        f"verbs:\n{verbs}\n\n{EXAMPLES}"
    )


def _report(error: ParedownError, *, as_json: bool) -> int:
    tell(f"paredown: {error}")
    if as_json:
        body = {
            "type": type(error).__name__,
            "message": str(error),
            "what": error.what,
            "seen": error.seen,
            "remedy": error.remedy,
        }
        say_json({"error": body}, indent=None)
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
