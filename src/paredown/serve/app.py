"""The ASGI application: its endpoints, and what becomes of errors."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from paredown.errors import ParedownError
from paredown.serve import errors
from paredown.serve.endpoint import routes_of
from paredown.serve.endpoint_table import ENDPOINTS
from paredown.serve.page.assets import page_routes
from paredown.serve.state import ServerState
from paredown.serve.task_state import AnyState

OPEN_PATHS = frozenset(one.path for one in ENDPOINTS if one.is_open)


def create_app(
    state: AnyState,
    *,
    on_worker_change: Callable[[], None] | None = None,
    page: bool = False,
) -> Starlette:
    """Returns the application. Starting it starts the worker, which loads the model;
    `on_worker_change` is called once the model is loaded and when the worker's thread has ended.
    `page` adds the web page at /."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if isinstance(state, ServerState):
            state.worker.observe_outputs(state.answer_stats.observe)
        state.worker.start(on_worker_change)
        yield
        state.worker.stop()

    pages = list(page_routes(generates=isinstance(state, ServerState))) if page else []
    app = Starlette(
        routes=[*routes_of(ENDPOINTS), *pages],
        exception_handlers={
            errors.HttpError: errors.answer_http_error,
            errors.ClientGoneError: errors.answer_client_gone,
            ParedownError: errors.answer_paredown_error,
            HTTPException: errors.answer_routing_error,
            Exception: errors.answer_bug,
        },
        lifespan=lifespan,
    )
    # A redirect would lead to a host of the client's choice.
    app.router.redirect_slashes = False
    app.state.server = state
    # The paths that need no key, and what /openapi.json says: whether others do, which make_server
    # knows.
    app.state.open_paths = OPEN_PATHS | {one.path for one in pages}
    app.state.has_keys, app.state.openapi = False, None
    return app
