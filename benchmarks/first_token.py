"""Warm starts: a fresh process, from its start to its first byte of output, which it writes after
the first token. The files are in the page cache after the starts that choose its settings; ours has
its packed weights on disk then, too, as a second start has them."""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.build import ROOT
from benchmarks.checkpoints.cache import Variant, gguf_file, paredown_folder
from benchmarks.peers import OURS

PROMPT = "Once upon a time"
PROGRAM = str(Path(sys.executable).parent / "paredown")
# The limit for a failed process's error text.
COMPLAINT_CHARACTERS = 600
TIMEOUT_S = 300.0

# Commands by the name of their settings; the fastest is measured.
StartCommands = Callable[[Path, Variant, int], Mapping[str, list[str]]]


def paredown_commands(root: Path, variant: Variant, num_threads: int) -> Mapping[str, list[str]]:
    folder = str(paredown_folder(root, variant).resolve())
    options = ["--max-tokens", "1", "--json", "--threads", str(num_threads)]
    return {"default": [PROGRAM, "generate", PROMPT, "--model", folder, *options]}


def llama_cpp_commands(root: Path, variant: Variant, num_threads: int) -> Mapping[str, list[str]]:
    module = [sys.executable, "-m", "benchmarks.peers.llama_cpp_start"]
    arguments = [str(gguf_file(root, variant).resolve()), str(num_threads), PROMPT]
    return {
        "weights as in the file": [*module, *arguments],
        "weights repacked": [*module, "--repack", *arguments],
    }


START_COMMANDS: Mapping[str, StartCommands] = {
    OURS: paredown_commands,
    "llama.cpp": llama_cpp_commands,
}


class StartError(Exception):
    """A process ended or timed out before its first token."""


def seconds_to_first_byte(command: list[str], timeout_s: float = TIMEOUT_S) -> float:
    """Returns the seconds of a command that runs in the project's folder. Raises StartError with
    its output."""
    with tempfile.TemporaryFile() as complaints:
        started = time.perf_counter()
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=complaints
        ) as process:
            assert process.stdout is not None
            killer = threading.Timer(timeout_s, process.kill)
            killer.start()
            try:
                first = process.stdout.read(1)
                elapsed = time.perf_counter() - started
                process.stdout.read()
                process.wait()
            finally:
                killer.cancel()
        if not first or process.returncode != 0:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace")[-COMPLAINT_CHARACTERS:]
            raise StartError(f"exit status {process.returncode} after {elapsed:.1f} s: {said}")
    return elapsed
