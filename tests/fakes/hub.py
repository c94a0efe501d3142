"""A small Hugging Face hub on loopback that can be told to fail."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER_COMMIT = "f" * 40


@dataclass(kw_only=True)
class Fault:
    """A failure for the next `times` requests whose path matches."""

    path: str
    status: int | None = None
    code: str | None = None
    cut_at: int | None = None
    body: bytes | None = None
    times: int = 1_000_000


@dataclass(kw_only=True)
class Repository:
    """A repository with `revisions` by name. Files of more than `large_from` bytes count as large
    (SHA-256)."""

    files: dict[str, bytes]
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})
    large_from: int = 1000

    def siblings(self) -> list[dict[str, object]]:
        return [self._sibling(name, data) for name, data in self.files.items()]

    def _sibling(self, name: str, data: bytes) -> dict[str, object]:
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        told: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": git}
        if len(data) >= self.large_from:
            sha256 = hashlib.sha256(data).hexdigest()
            told["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 130}
        return told


@dataclass(kw_only=True)
class FakeHub:
    """The hub's state. `requests` lists the requests with their ranges, `tokens` their
    authorization."""

    url: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)

    def fault_for(self, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    """Serves until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = FakeHub(url=f"http://127.0.0.1:{server.server_port}")
    server.hub = hub
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        hub: FakeHub = self.server.hub
        path = unquote(urlsplit(self.path).path)
        hub.requests.append((path, self.headers.get("Range")))
        hub.tokens.add(self.headers.get("Authorization"))
        fault = hub.fault_for(path)
        if fault is not None and fault.status is not None:
            self._refuse(fault.status, fault.code)
        elif api := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            self._tell(hub, fault, *api.groups())
        elif file := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._send(hub, fault, *file.groups())
        else:
            self._refuse(404, None)

    def _tell(self, hub: FakeHub, fault: Fault | None, repository: str, revision: str) -> None:
        found = hub.repositories.get(repository)
        if found is None:
            self._refuse(404, "RepoNotFound")
            return
        commit = found.revisions.get(revision)
        if commit is None and revision not in found.revisions.values():
            self._refuse(404, "RevisionNotFound")
            return
        told = {"id": repository, "sha": commit or revision, "siblings": found.siblings()}
        body = json.dumps(told).encode() if fault is None or fault.body is None else fault.body
        self._answer(200, body, {"Content-Type": "application/json"})

    def _send(
        self, hub: FakeHub, fault: Fault | None, repository: str, commit: str, file: str
    ) -> None:
        found = hub.repositories.get(repository)
        if found is None or file not in found.files:
            self._refuse(404, "EntryNotFound")
            return
        whole = found.files[file] if fault is None or fault.body is None else fault.body
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = 0 if asked is None else int(asked[1])
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(whole).hexdigest()}"'}
        if asked is not None:
            headers["Content-Range"] = f"bytes {start}-{len(whole) - 1}/{len(whole)}"
        cut = None if fault is None else fault.cut_at
        self._answer(200 if asked is None else 206, whole[start:], headers, cut)

    def _refuse(self, status: int, code: str | None) -> None:
        self._answer(status, b"no", {} if code is None else {"X-Error-Code": code})

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str], cut_at: int | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if cut_at is None else body[:cut_at])
        if cut_at is not None:
            self.close_connection = True
