"""GET /health, /ready and /version: whether the server works, and which one it is."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import paredown
from paredown.serve.errors import RETRY_AFTER_S
from paredown.serve.task_state import AnyState


async def health(request: Request) -> Response:
    """Returns 200 when requests are answered. Returns 503 while the model is loading, when its
    thread has died, and when a step hangs, which is judged by the engine's progress."""
    state: AnyState = request.app.state.server
    return _answer(state.worker.status)


async def ready(request: Request) -> Response:
    """Returns what `health` returns, and 503 once the server is told to stop: whoever shares out
    requests should send no more."""
    state: AnyState = request.app.state.server
    is_draining = state.stopping.is_set()
    return _answer("draining" if is_draining else state.worker.status)


async def show_version(request: Request) -> Response:
    return JSONResponse({"version": paredown.__version__})


def _answer(status: str) -> Response:
    if status == "ready":
        return JSONResponse({"status": status})
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return JSONResponse({"status": status}, status_code=503, headers=headers)
