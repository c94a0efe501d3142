"""The part of `paredown serve` that is the same for every model: listens, announces, serves."""

import argparse
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NoReturn

from paredown.cli.printed import say, say_json, tell
from paredown.models.hub.hub_source import model_name
from paredown.serve.app import create_app
from paredown.serve.doors.hosts import is_loopback
from paredown.serve.server import Listen, Server, make_server
from paredown.serve.task_state import AnyState
from paredown.serve.watch.line_writer import LineWriter
from paredown.serve.watch.log import written_by
from paredown.serve.watch.request_log import Form, RequestLog
from paredown.shell_word import shell_word
from paredown.shown import shown

# A path, and a body without the model's name.
Example = tuple[str, Mapping[str, object]]


def serve_until_stopped(
    args: argparse.Namespace, listen: Listen, state: AnyState, example: Example
) -> int | None:
    """Serves until a signal or a failure; returns the signal. The address is told with `example`
    once the model is loaded."""
    worker = state.worker
    with listen.open_socket() as sock:
        url = _url(sock, "http" if listen.certificates is None else "https")

        def announce() -> None:
            if worker.status == "ready":
                _announce(url, state.model_name, example, as_json=args.json)
            elif worker.status == "dead":
                server.should_exit = True

        app = create_app(state, on_worker_change=announce, page=not args.no_page)
        form: Form | Literal["off"] = args.log_requests or _usual_form()
        writer = LineWriter()
        log = None if form == "off" else RequestLog(form, writer.write)
        server: Server = make_server(app, worker, listen, log=log)
        server.end_at_once = partial(_end_at_once, writer)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            # uvicorn handles SIGTERM and Ctrl-C itself.
            signal.signal(signal.SIGHUP, server.handle_hangup)
        if listen.keys is None and not is_loopback(sock.getsockname()[0]):
            tell(f"anyone who can reach {url} can use this model")
        try:
            with written_by(writer.write, as_json=form == "json"):
                server.run(sockets=[sock])
        finally:
            writer.close()
            # What is frozen is never let go of: the core would report it as leaked.
            gc.unfreeze()
    return server.stopped_by


def _end_at_once(writer: LineWriter, sent: int) -> NoReturn:
    """Ends the process, without the wait for a step under way that an exit has."""
    writer.close()
    tell("stopped at once: answers under way were cut off")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(128 + sent)


def _usual_form() -> Form:
    return "text" if sys.stderr.isatty() else "json"


def served_name(asked: str | None, path: Path) -> str:
    """Returns the model's name in answers as valid text, since a folder's name may be any bytes."""
    return shown(asked or model_name(path))


def freeze() -> None:
    """Excludes permanent objects from garbage collection: each full collection would visit them and
    stop all threads for 40 ms."""
    gc.collect()
    gc.freeze()


def _url(sock: socket.socket, scheme: str) -> str:
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _announce(url: str, model_name: str, example: Example, *, as_json: bool) -> None:
    if as_json:
        say_json({"url": url, "model": model_name}, indent=None, flush=True)
        return
    path, fields = example
    body = json.dumps({"model": model_name, **fields})
    say(f"{model_name} answers at {url}/v1")
    header = "-H 'Content-Type: application/json'"
    say(f"curl {url}{path} {header} -d {shell_word(body)}", flush=True)
