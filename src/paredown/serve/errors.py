"""Errors as the OpenAI API tells them: {"error": {"message", "type", "param", "code"}}."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from paredown.engine.encode.encoder_model import WrongTaskError
from paredown.engine.encode.run_batch import ModelFailedError
from paredown.engine.grammar.grammar import GrammarError
from paredown.engine.model_thread import UnavailableError
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.schedule.scheduler import QueueFullError
from paredown.errors import ParedownError
from paredown.models.text.confined_process import NoProcessError
from paredown.shown import shown

# What a client sent comes back in a message, so the message is cut as a whole, too.
MAX_MESSAGE_CHARS = 1000
MAX_NAME_CHARS = 100
RETRY_AFTER_S = 1
CLIENT_CLOSED_REQUEST = 499
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}


class HttpError(Exception):
    """An answer that is not 200. `param` names the field of the request that is at fault. What the
    client sent comes back in both on one line, escaped and cut."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        self.status, self.code = status, code
        self.message = shown(message, MAX_MESSAGE_CHARS)
        self.param = None if param is None else shown(param, MAX_NAME_CHARS)
        super().__init__(self.message)

    def body(self) -> dict[str, object]:
        return {
            "error": {
                "message": self.message,
                "type": TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(
        self,
        headers: Mapping[str, str] | None = None,
        *,
        body: Mapping[str, object] | None = None,
    ) -> JSONResponse:
        """Returns the answer; `body` is how another API tells the error."""
        headers = dict(headers or {})
        if self.status in (429, 503):
            headers["Retry-After"] = str(RETRY_AFTER_S)
        return JSONResponse(body or self.body(), status_code=self.status, headers=headers)


class ClientGoneError(Exception):
    """The client closed the connection; nobody reads an answer."""


def as_http_error(error: ParedownError) -> HttpError:
    """The status and the code of one of our own errors."""
    if isinstance(error, ParameterError):
        return HttpError(400, str(error), param=error.field, code="invalid_value")
    if isinstance(error, GrammarError):
        return HttpError(400, str(error), param=error.origin, code="invalid_grammar")
    if isinstance(error, WrongTaskError):
        return HttpError(400, str(error), param="model", code="wrong_task")
    if isinstance(error, ModelFailedError):
        return HttpError(500, str(error), code="model_failed")
    if isinstance(error, QueueFullError):
        return HttpError(429, str(error), code="queue_full")
    if isinstance(error, UnavailableError | NoProcessError):
        return HttpError(503, str(error), code="unavailable")
    return HttpError(400, str(error), code="invalid_request")


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HttpError)
    return error.response()


async def answer_paredown_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ParedownError)
    return as_http_error(error).response()


async def answer_routing_error(request: Request, error: Exception) -> JSONResponse:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    method, path = request.method, request.scope["path"]
    message = f"{shown(method, MAX_NAME_CHARS)} {shown(path, MAX_NAME_CHARS)}: {error.detail}"
    return HttpError(error.status_code, message).response(error.headers)


async def answer_client_gone(request: Request, error: Exception) -> JSONResponse:
    """Goes nowhere; the status is for whoever counts answers."""
    return HttpError(CLIENT_CLOSED_REQUEST, "the client closed the connection").response()


async def answer_bug(request: Request, error: Exception) -> JSONResponse:
    """A fault of the server; the log has the trace."""
    return HttpError(500, "the server failed; its log has the details").response()
