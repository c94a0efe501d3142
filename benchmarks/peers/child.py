"""Runs a peer in its own process, so that thread pools, memory and crashes stay separate.

The parent sends (method, arguments) over a pipe and waits; while one child works the others sleep
in `recv`. What a peer prints goes to its log file. A child may run the driver of another commit:
both must know the protocol Peer and what its methods are given (Variant, LoadOptions).
"""

import argparse
import ctypes
import importlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.peers import Target
from paredown.errors import ParedownError

LOG_TAIL_CHARACTERS = 600
EXIT_GRACE_S = 10.0
# From linux/prctl.h.
PR_SET_PDEATHSIG = 1


class PeerError(Exception):
    """A peer could not do what was asked: not installed, unsupported, crashed or too slow."""


@dataclass(frozen=True, kw_only=True)
class _Failure:
    reason: str


class ChildPeer:
    """The parent's side. A crash or a timeout ends the child and raises PeerError, as does every
    later call."""

    def __init__(self, target: Target, log: Path, timeout_s: float = 900.0) -> None:
        self._log = log
        self._timeout_s = timeout_s
        self._reason: str | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        parent_read, child_write = os.pipe()
        child_read, parent_write = os.pipe()
        pipes = str(child_read), str(child_write)
        with log.open("w") as stream:
            self._process = subprocess.Popen(
                target.build.command("benchmarks.peers", target.target, *pipes),
                pass_fds=(child_read, child_write),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=target.build.tree,
                env=target.build.environment(target.environment),
            )
        os.close(child_read)
        os.close(child_write)
        self._answers = Connection(parent_read, writable=False)
        self._requests = Connection(parent_write, readable=False)

    def call(self, method: str, *arguments: object) -> Any:
        """Returns the method's result. Raises PeerError."""
        if self._reason is not None:
            raise PeerError(self._reason)
        try:
            self._requests.send((method, arguments))
            if not self._answers.poll(self._timeout_s):
                self._give_up(f"{method} took longer than {self._timeout_s:.0f} s")
            answer = self._answers.recv()
        except (EOFError, OSError):
            self._give_up(f"crashed in {method} ({self._exit_status()}): {self._log_tail()}")
        if isinstance(answer, _Failure):
            raise PeerError(answer.reason)
        return answer

    @property
    def is_alive(self) -> bool:
        """Returns whether calls can still succeed."""
        return self._reason is None

    def stop(self) -> None:
        """Ends the child; a second call does nothing."""
        self._requests.close()
        try:
            self._process.wait(EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        self._process.kill()
        self._process.wait()
        raise PeerError(reason)

    def _exit_status(self) -> str:
        try:
            return f"exit status {self._process.wait(EXIT_GRACE_S)}"
        except subprocess.TimeoutExpired:
            return "still running"

    def _log_tail(self) -> str:
        text = self._log.read_text(errors="replace").strip()
        return text[-LOG_TAIL_CHARACTERS:]


def serve(target: str, requests: Connection, answers: Connection) -> None:
    """Runs the child's side. It makes the peer at the first call, so that a missing package is an
    answer, and ends when the parent closes the pipe."""
    peer: object = None
    while True:
        try:
            method, arguments = requests.recv()
        except EOFError:
            return
        try:
            if peer is None:
                module, name = target.split(":")
                peer = getattr(importlib.import_module(module), name)()
            answer = getattr(peer, method)(*arguments)
        except ImportError as error:
            answer = _Failure(reason=f"not installed: {error}")
        except ParedownError as error:
            answer = _Failure(reason=str(error))
        except Exception as error:  # whatever an engine throws is its row in the table
            answer = _Failure(reason=f"{type(error).__name__}: {error}")
        answers.send(answer)


def end_with_parent() -> None:
    """Makes the kernel end this process if the parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    end_with_parent()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("requests", type=int)
    parser.add_argument("answers", type=int)
    args = parser.parse_args()
    serve(
        args.target,
        Connection(args.requests, writable=False),
        Connection(args.answers, readable=False),
    )
