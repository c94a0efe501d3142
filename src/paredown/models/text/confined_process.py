"""ConfinedProcess: runs a program that came with a model, so that it can be stopped.

Chat templates are programs, and so are tokenizers with their own regular expressions. A thread that
runs one cannot be stopped and may hold the GIL. This process can: the kernel ends it when it
exceeds its processor time or memory, and a new one takes its place. A round trip takes 0.07 ms, or
0.3 ms with 30 KB.
"""

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass

from paredown.errors import CapacityError
from paredown.models.text.confined_main import (
    DONE,
    OUT_OF_MEMORY,
    REPLY_HEAD,
    REQUEST_HEAD,
)
from paredown.units import MEBI, format_bytes

_START = "from paredown.models.text.confined_main import main; main()"
# The parent's import paths may differ from those of a fresh interpreter.
_FIND = "import sys, json; sys.path += [x for x in json.loads(sys.argv[3]) if x not in sys.path]; "
# What an interpreter needs to start, plus the time zone; no keys and no tokens.
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "TZ", "LANG")
# Wall time allowed per second of processor time.
_WALL_PER_CPU = 20.0
_START_WALL_S = 30.0
# Recent failed requests are not retried soon, since they would delay others again.
_MAX_FAILED, _FAILED_FOR_S = 256, 60.0
_LOW_PRIORITY = 10
# What a person or a system short of memory ends processes with.
_FROM_OUTSIDE = tuple(-one for one in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))


class LimitError(Exception):
    """A program of the model reached a limit, which the text names."""


class ProgramError(Exception):
    """A program of the model failed; the text says how."""


class LateError(LimitError):
    """The machine had no time for the program, or ended it; that may be no fault of it."""


class NotStartedError(ProgramError):
    """No process could be started for the program."""


class NoProcessError(CapacityError):
    """No process could be started for `what`; this is the error that the user sees."""

    def __init__(self, what: str, error: NotStartedError) -> None:
        super().__init__(
            f"{what} runs in a process of its own, and none could be started",
            seen=error,
            remedy="Try again; if it stays so, raise the limits of open files, processes and "
            "memory (`ulimit -n`, `ulimit -u`, `ulimit -v`).",
        )


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """`target`            module:function, which makes a handler of requests from the setup
    `setup_cpu_s`       processor time to start in
    `max_memory_bytes`  address space, the interpreter's own 0.05 GB included
    `max_reply_bytes`   of one answer
    `patience_s`        a request that takes longer gives way to whatever else wants the processor,
                        and its process ends with it; None: it does not
    """

    target: str
    setup_cpu_s: float = 5.0
    max_memory_bytes: int = 512 * MEBI
    max_reply_bytes: int = 64 * MEBI
    patience_s: float | None = None


class ConfinedProcess:
    """One process, started on first use and again after it was ended. Threads take turns. `setup`
    is its first payload."""

    def __init__(self, confinement: Confinement, setup: bytes) -> None:
        self._confinement = confinement
        self._setup = setup
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., ConfinedProcess] | None = None
        # Forked copies of this process share its pipes, so only the owner may use them.
        self._owner = 0
        self._is_ready = False
        self._gives_way = False
        # By digest: why a request failed, and until when that is remembered.
        self._failed: dict[bytes, tuple[float, LimitError | ProgramError]] = {}

    def start(self) -> None:
        """Starts the process without waiting until it is ready. Raises ProgramError."""
        with self._turn:
            self._ensure()

    def ask(self, request: bytes, *, cpu_s: float) -> bytes:
        """Returns the program's answer. Raises LimitError, after which a new process is used, or
        ProgramError for an error of the program. A request that failed a moment ago fails at once.
        """
        with self._turn:
            if self._failed:
                self._check_failed(request)
            try:
                return self._answer(request, cpu_s)
            except (LimitError, ProgramError) as error:
                if not isinstance(error, LateError | NotStartedError):
                    self._remember(request, error)
                raise
            finally:
                if self._gives_way:
                    self._stop()

    def _answer(self, request: bytes, cpu_s: float) -> bytes:
        process = self._ensure()
        try:
            how, reply = self._exchange(process, request, cpu_s)
        except BaseException:
            # An answer that nobody read must not be taken for the next request's.
            self._stop()
            raise
        if how == DONE:
            return reply
        if how == OUT_OF_MEMORY:
            self._stop()
            raise LimitError(f"it takes more than {self._memory} of memory")
        raise ProgramError(reply.decode(errors="replace"))

    def close(self) -> None:
        """Ends the process; the next request starts another."""
        with self._turn:
            self._stop()

    @property
    def _memory(self) -> str:
        return format_bytes(self._confinement.max_memory_bytes)

    def _ensure(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner != os.getpid():
            self._process = None
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            self._process, self._is_ready, self._owner = self._spawn(), False, os.getpid()
            self._end = weakref.finalize(self, _end, self._process, self._owner)
            self._send(self._process, self._setup, self._confinement.setup_cpu_s)
        return self._process

    def _spawn(self) -> subprocess.Popen[bytes]:
        path = json.dumps([entry for entry in sys.path if entry])
        if not sys.executable:
            raise NotStartedError("the path of the Python interpreter is not known")
        try:
            return self._popen(path)
        except OSError as error:
            raise NotStartedError(f"a process for it cannot be started: {error}") from error

    def _popen(self, path: str) -> subprocess.Popen[bytes]:
        one = self._confinement
        return subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                _FIND + _START,
                one.target,
                str(one.max_memory_bytes),
                path,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            # Ctrl-C in a terminal is meant for the parent, not for this process.
            start_new_session=True,
        )

    def _exchange(
        self, process: subprocess.Popen[bytes], request: bytes, cpu_s: float
    ) -> tuple[bytes, bytes]:
        if not self._is_ready:
            wall_s = _START_WALL_S + _WALL_PER_CPU * self._confinement.setup_cpu_s
            self._receive(process, wall_s, self._confinement.setup_cpu_s)
            self._is_ready = True
        self._send(process, request, cpu_s)
        return self._receive(process, _WALL_PER_CPU * cpu_s, cpu_s)

    def _send(self, process: subprocess.Popen[bytes], payload: bytes, cpu_s: float) -> None:
        assert process.stdin is not None
        rest = memoryview(REQUEST_HEAD.pack(len(payload), cpu_s) + payload)
        try:
            while rest:
                rest = rest[os.write(process.stdin.fileno(), rest) :]
        except BrokenPipeError:
            return  # it has ended; what is read from it says how

    def _receive(
        self, process: subprocess.Popen[bytes], wall_s: float, cpu_s: float
    ) -> tuple[bytes, bytes]:
        end_s = time.monotonic() + wall_s
        length, how = REPLY_HEAD.unpack(self._read(process, REPLY_HEAD.size, end_s, cpu_s))
        if length > self._confinement.max_reply_bytes:
            most = format_bytes(self._confinement.max_reply_bytes)
            raise LimitError(f"it makes {format_bytes(length)} of text, more than {most}")
        return how, self._read(process, length, end_s, cpu_s)

    def _read(
        self, process: subprocess.Popen[bytes], num_bytes: int, end_s: float, cpu_s: float
    ) -> bytes:
        assert process.stdout is not None
        replies = process.stdout.fileno()
        door = select.poll()
        door.register(replies, select.POLLIN)
        data = bytearray()
        while len(data) < num_bytes:
            self._wait(process, door)
            if not door.poll(max(0.0, end_s - time.monotonic()) * 1000):
                raise LateError("it did not come to its end in time")
            part = os.read(replies, num_bytes - len(data))
            if not part:
                raise self._ended(process, cpu_s)
            data += part
        return bytes(data)

    def _wait(self, process: subprocess.Popen[bytes], door: select.poll) -> None:
        """Waits as long as patience lasts, then lowers the process's priority."""
        patience_s = self._confinement.patience_s
        if patience_s is None or self._gives_way or not self._is_ready:
            return
        if not door.poll(patience_s * 1000) and process.poll() is None:
            self._gives_way = True
            os.setpriority(os.PRIO_PROCESS, process.pid, _LOW_PRIORITY)

    def _ended(self, process: subprocess.Popen[bytes], cpu_s: float) -> Exception:
        """Returns why the process closed its pipe."""
        code = process.wait()
        if code == -signal.SIGPROF:
            return LimitError(f"it takes more than {cpu_s:.3g} s of processor time")
        if code in _FROM_OUTSIDE:
            return LateError(f"its process was ended by {_signal_name(-code)}")
        if code < 0:
            return LimitError(f"its process was ended by {_signal_name(-code)}")
        return ProgramError(f"its process ended with code {code}")

    def _stop(self) -> None:
        if self._end is not None:
            self._end()
        self._process = self._end = None
        self._gives_way = False

    def _check_failed(self, request: bytes) -> None:
        until_s, error = self._failed.get(_digest(request), (0.0, None))
        if error is not None and time.monotonic() < until_s:
            raise type(error)(*error.args)

    def _remember(self, request: bytes, error: LimitError | ProgramError) -> None:
        self._failed.pop(_digest(request), None)
        if len(self._failed) >= _MAX_FAILED:
            del self._failed[next(iter(self._failed))]
        self._failed[_digest(request)] = (time.monotonic() + _FAILED_FOR_S, error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal, of which the first and the last have names
        return f"signal {number}"


def _digest(request: bytes) -> bytes:
    return hashlib.blake2b(request, digest_size=16).digest()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # its parent has it still
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()
