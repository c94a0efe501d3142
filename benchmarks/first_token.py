"""Warm starts: a fresh process, from its start to its first byte of output, which it writes after
the first token. The files are in the page cache after a start that does not count."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.checkpoints.cache import Variant, gguf_file, paredown_folder
from benchmarks.peers import OURS

PROMPT = "Once upon a time"
LLAMA_CPP = (
    "import sys, llama_cpp; model = llama_cpp.Llama(sys.argv[1], n_ctx=512, "
    "n_threads=int(sys.argv[2]), verbose=False); print(model(sys.argv[3], max_tokens=1))"
)

StartCommand = Callable[[Path, Variant, int], list[str]]


def paredown_command(root: Path, variant: Variant, num_threads: int) -> list[str]:
    program = str(Path(sys.executable).parent / "paredown")
    folder = str(paredown_folder(root, variant))
    options = ["--max-tokens", "1", "--json", "--threads", str(num_threads)]
    return [program, "generate", PROMPT, "--model", folder, *options]


def llama_cpp_command(root: Path, variant: Variant, num_threads: int) -> list[str]:
    path = str(gguf_file(root, variant))
    return [sys.executable, "-c", LLAMA_CPP, path, str(num_threads), PROMPT]


START_COMMANDS: Mapping[str, StartCommand] = {
    OURS: paredown_command,
    "llama.cpp": llama_cpp_command,
}


class StartError(Exception):
    """A process ended without its first token."""


def seconds_to_first_byte(command: list[str]) -> float:
    """Raises StartError with what the process said."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        elapsed = time.perf_counter() - started
        _, complaints = process.communicate()
    if not first or process.returncode != 0:
        raise StartError(complaints.decode(errors="replace")[-600:])
    return elapsed
