"""Errors as the Messages API tells them: {"type": "error", "error": {"type", "message"}}."""

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


def message_error(error: HttpError) -> dict[str, object]:
    """Returns the body of the error. The field at fault stands in the message."""
    kind = _TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
