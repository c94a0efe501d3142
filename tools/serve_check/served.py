"""Served: a server in a process of its own, on a free loopback port."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 120
STOP_S = 60
WAIT_S = 20
_METRIC = re.compile(r"^([A-Za-z_:][\w:]*) (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Served:
    """A running server; `log` holds what it writes to standard error."""

    url: str
    model: str
    process_id: int
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def memory_bytes(self) -> int:
        """Resident memory that is the process's own: no files that are mapped."""
        status = Path(f"/proc/{self.process_id}/status").read_text()
        found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None, "this kernel does not tell RssAnon"
        return 1024 * int(found[1])

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=WAIT_S) as reply:
            return bytes(reply.read())

    def post(self, path: str, body: object) -> Any:
        """Returns the object that a request is answered with. Raises HTTPError."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
            return json.load(reply)

    def metrics(self) -> dict[str, float]:
        """Returns the metrics without labels, by name."""
        text = self.get("/metrics").decode()
        return {name: float(value) for name, value in _METRIC.findall(text)}

    def wait_until_idle(self) -> list[str]:
        """Returns what is still held after `WAIT_S`: nothing where every request has ended."""
        names = ("requests_running", "requests_waiting", "pages_used")
        deadline_s = time.monotonic() + WAIT_S
        while True:
            now = self.metrics()
            held = [f"{name} {now[f'paredown_{name}']:g}" for name in names]
            held = [one for one in held if not one.endswith(" 0")]
            if not held or time.monotonic() > deadline_s:
                return held
            time.sleep(0.1)


@contextlib.contextmanager
def serve(*words: str, on_log: Callable[[str], None] | None = None) -> Iterator[Served]:
    """Runs `paredown serve` with these words inside the block. Raises AssertionError where it does
    not start, or does not end by itself once it is told to; `on_log` gets what it wrote."""
    command = [sys.executable, "-m", "paredown.cli.main", "serve", "--port", "0", "--json", *words]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with (
            log.open("wb") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
        ):
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, f"the server did not start: {log.read_text()}"
                ready = json.loads(line)
                assert "url" in ready, f"the server did not start: {line.decode()}"
                yield Served(ready["url"], ready["model"], process.pid, log)
                process.send_signal(signal.SIGTERM)
                assert process.wait(STOP_S) == 0, "the server did not end with 0"
            finally:
                process.kill()
                if on_log is not None:
                    on_log(log.read_text(errors="replace"))
