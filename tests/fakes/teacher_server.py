"""A teacher on loopback that counts what it is asked and can be told to fail."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

Reply = Callable[[str], str]


def echo(prompt: str) -> str:
    return f"It is known that {prompt}"


@dataclass(kw_only=True)
class Fault:
    """What befalls the next `times` requests: a status, a body in place of the answer, a
    connection that ends, or a wait. Where it `bills`, what did not arrive was computed."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    hangs_up: bool = False
    bills: bool = False
    delay_s: float = 0.0
    times: int = 1_000_000


@dataclass(kw_only=True)
class FakeTeacher:
    """`asked` counts requests by their body, `answered` those with an answer. `num_tokens` is what
    answers have cost by `usage`, lost ones and garbage too, and `most_at_once` how many were under
    way together."""

    url: str
    reply: Reply = echo
    finish_reason: str = "stop"
    usage: Callable[[str, str], int] = lambda prompt, text: len(prompt) + len(text)
    tells_usage: bool = True
    message: dict[str, object] = field(default_factory=dict)
    delay_s: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    asked: Counter[bytes] = field(default_factory=Counter)
    answered: Counter[bytes] = field(default_factory=Counter)
    bodies: list[dict[str, object]] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    num_tokens: int = 0
    now: int = 0
    most_at_once: int = 0
    lock: Lock = field(default_factory=Lock)

    @property
    def num_asked(self) -> int:
        return self.asked.total()

    def begin(self, body: bytes) -> Fault:
        with self.lock:
            self.asked[body] += 1
            self.bodies.append(json.loads(body))
            self.times_s.append(time.monotonic())
            self.now += 1
            self.most_at_once = max(self.most_at_once, self.now)
            for fault in self.faults:
                if fault.times > 0:
                    fault.times -= 1
                    return fault
        return Fault()

    def answer(self, body: bytes) -> bytes:
        prompt = json.loads(body)["messages"][-1]["content"]
        text = self.reply(prompt)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, **self.message},
            "finish_reason": self.finish_reason,
        }
        told: dict[str, object] = {"object": "chat.completion", "choices": [choice]}
        cost = self.bill(body, text)
        if self.tells_usage:
            told["usage"] = {"prompt_tokens": 0, "completion_tokens": cost, "total_tokens": cost}
        with self.lock:
            self.answered[body] += 1
        return json.dumps(told).encode()

    def bill(self, body: bytes, text: str = "") -> int:
        """Counts what the answer costs, whether or not it arrives."""
        cost = self.usage(json.loads(body)["messages"][-1]["content"], text)
        with self.lock:
            self.num_tokens += cost
        return cost


@contextmanager
def running_teacher(**options: object) -> Iterator[FakeTeacher]:
    """Serves until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    teacher = FakeTeacher(url=f"http://127.0.0.1:{server.server_port}", **options)
    server.teacher = teacher
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield teacher
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Answers are written in two pieces, which the system would otherwise hold together.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        teacher: FakeTeacher = self.server.teacher
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not body:  # who asked was killed before it was sent
            self.close_connection = True
            return
        teacher.paths.add(self.path)
        teacher.headers.append(dict(self.headers))
        fault = teacher.begin(body)
        try:
            time.sleep(teacher.delay_s + fault.delay_s)
            if fault.bills or fault.hangs_up or (fault.body is not None and fault.status == 200):
                teacher.bill(body)
            if fault.hangs_up:
                self.close_connection = True
                return
            data = fault.body
            if data is None:
                data = teacher.answer(body) if fault.status == 200 else b'{"error": {}}'
            self.send_response(fault.status)
            self.send_header("Content-Length", str(len(data)))
            for name, value in fault.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with teacher.lock:
                teacher.now -= 1
