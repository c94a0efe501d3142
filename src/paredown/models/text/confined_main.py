"""The program of a ConfinedProcess. It answers one request after another under the limits that it
was started with.

A request frame is a header (length in bytes, processor seconds) and a payload. A reply frame is a
header (length, outcome) and a payload. Only bytes and JSON cross, so the worst that a template or
tokenizer can do to us is a wrong answer.
"""

import importlib
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable

REQUEST_HEAD = struct.Struct("<Id")
REPLY_HEAD = struct.Struct("<Ic")
DONE, FAILED, OUT_OF_MEMORY = b"d", b"f", b"m"
REQUESTS, REPLIES = 0, 1
Handler = Callable[[bytes], bytes]


def main() -> None:
    """Runs the program. `argv` holds module:function, which makes the handler from the first
    payload, and the memory limit in bytes."""
    target, max_memory_bytes = sys.argv[1:3]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A service manager stops all processes of a server at once, and that one still has answers to
    # finish. This one ends when its requests do.
    for stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)
    module, _, function = target.partition(":")
    make_handler: Callable[[bytes], Handler] = getattr(importlib.import_module(module), function)
    _limit_memory(int(max_memory_bytes))
    handler: Handler | None = None
    while (request := _read_request()) is not None:
        payload, cpu_s = request
        # The signal ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        if handler is None:
            how, reply, handler = DONE, b"", make_handler(payload)
        else:
            how, reply = _answer(handler, payload)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(REPLY_HEAD.pack(len(reply), how) + reply)
        if how == OUT_OF_MEMORY:
            return


def _limit_memory(max_bytes: int) -> None:
    """Sets the limit unless whoever started the parent has set a lower one."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        max_bytes = min(max_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))


def _answer(handler: Handler, payload: bytes) -> tuple[bytes, bytes]:
    try:
        return DONE, handler(payload)
    except MemoryError:
        return OUT_OF_MEMORY, b""
    except BaseException as error:  # a library's panic is no Exception
        return FAILED, f"{type(error).__name__}: {error}".encode(errors="replace")


def _read_request() -> tuple[bytes, float] | None:
    """Returns the next request; None when the parent has closed the pipe or is gone."""
    head = _read(REQUEST_HEAD.size)
    if head is None:
        return None
    length, cpu_s = REQUEST_HEAD.unpack(head)
    payload = _read(length)
    return None if payload is None else (payload, cpu_s)


def _read(num_bytes: int) -> bytes | None:
    data = bytearray()
    while len(data) < num_bytes:
        part = os.read(REQUESTS, num_bytes - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(REPLIES, rest) :]
