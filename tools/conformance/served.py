"""A `paredown serve` that suites talk to: at most one process, kept while the same is asked for."""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from tools.conformance.served_model import ServedModel
from tools.conformance.work import Work

_MAIN = "import sys; from paredown.cli.main import main; sys.exit(main())"
_STOP_S = 20
# An answer that its request does not limit ends here, so that a model that never stops by itself
# takes seconds.
ANSWER_TOKENS = 1024


@dataclass(frozen=True, kw_only=True)
class Service:
    """A server: its model, the name in its answers, more options, and the key that it asks for."""

    model: ServedModel
    name: str
    options: tuple[str, ...] = ()
    api_key: str | None = None


class ServerPool:
    """Starts servers, one at a time. A server answers on while the same one is asked for."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._service: Service | None = None
        self._process: subprocess.Popen[str] | None = None
        self._url = ""
        atexit.register(self.close)

    def url(self, service: Service) -> str:
        """Returns the address of a server, as `http://127.0.0.1:8000`. Starts it, and stops one
        of other settings. Raises RuntimeError with its last words where it does not start."""
        alive = self._process is not None and self._process.poll() is None
        if not alive or service != self._service:
            self.close()
            self._process = self._started(service)
            self._service = service
            self._url = self._ready_url(self._process)
        return self._url

    def close(self) -> None:
        """Stops the server, if one is running."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _started(self, service: Service) -> subprocess.Popen[str]:
        folder = service.model.folder(self._work.folder)
        generates = ("--max-answer-tokens", str(ANSWER_TOKENS))
        kind = ("--task", "embed", "--any-dimensions") if service.model.is_encoder else generates
        command = ["serve", str(folder), "--json", "--port", "0", "--name", service.name]
        command += ["--no-verify", "--drain-s", "0", *kind, *service.options]
        with self._log("a") as log:
            log.write(f"\n$ paredown {' '.join(command)}\n")
            log.flush()
            return subprocess.Popen(
                [sys.executable, "-c", _MAIN, *command],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=_environment(service),
            )

    def _ready_url(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        told = json.loads(line) if line else {}
        if "url" not in told:
            process.wait()
            with self._log("r") as log:
                words = line or log.read()[-2000:]
            raise RuntimeError(f"the server did not start (exit {process.returncode}): {words}")
        return str(told["url"])

    def _log(self, mode: str) -> IO[str]:
        return (self._work.folder / "server.log").open(mode, encoding="utf-8")


def _environment(service: Service) -> Mapping[str, str]:
    key = {} if service.api_key is None else {"PAREDOWN_API_KEY": service.api_key}
    return {**os.environ, **key}
