"""Errors as the Messages API tells them: {"type": "error", "error": {"type", "message"}}."""

from starlette.types import Scope

from paredown.serve.errors import HttpError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
# Below it, errors have this form.
PATH = "/v1/messages"


def error_body(error: HttpError, scope: Scope) -> dict[str, object]:
    """Returns the body of an error in the form of the API that was asked."""
    is_message = scope["path"] == PATH or scope["path"].startswith(PATH + "/")
    return message_error(error) if is_message else error.body()


def message_error(error: HttpError) -> dict[str, object]:
    """Returns the body of the error. The field at fault stands in the message."""
    kind = _TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
