"""Watches each request from outside: gives it an id, and writes its line in the log."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paredown.serve.watch.request_line import RequestLine
from paredown.serve.watch.request_log import RequestLog
from paredown.serve.watch.request_record import ID_HEADER, RequestRecord

# Asked for every few seconds.
QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})
_ID = ID_HEADER.lower().encode()


class RequestWatch:
    """The outermost part of the application. Probes that find all well get no line."""

    def __init__(self, app: ASGIApp, log: RequestLog | None) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord.of(scope)
        answer = _Answer(send, record.id.encode())
        try:
            await self._app(scope, receive, answer.send)
        finally:
            is_quiet = answer.status == 200 and scope["path"] in QUIET_PATHS
            if self._log is not None and not is_quiet:
                self._log.write(self._line(scope, record, answer))

    def _line(self, scope: Scope, record: RequestRecord, answer: "_Answer") -> RequestLine:
        first_s = record.first_token_s
        return RequestLine(
            request_id=record.id,
            method=scope["method"],
            path=scope["path"],
            status=answer.status,
            is_whole=answer.is_whole,
            num_prompt_tokens=record.num_prompt_tokens,
            num_generated_tokens=record.num_generated_tokens,
            time_to_first_token_s=None if first_s is None else first_s - record.start_s,
            duration_s=time.perf_counter() - record.start_s,
            key_name=record.key_name,
        )


class _Answer:
    """Passes an answer on and remembers how far it came. `status` is 0 before it begins."""

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0
        self.is_whole = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message["headers"], (_ID, self._request_id)]}
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.is_whole = True
