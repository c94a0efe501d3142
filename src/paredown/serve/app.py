"""The ASGI application: its routes and middleware."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paredown.errors import ParedownError
from paredown.serve import errors
from paredown.serve.encoder_state import EncoderState
from paredown.serve.endpoints.chat import chat
from paredown.serve.endpoints.classify import classify
from paredown.serve.endpoints.completions import complete
from paredown.serve.endpoints.embeddings import embed
from paredown.serve.endpoints.messages import count_message_tokens, create_message
from paredown.serve.endpoints.report import report
from paredown.serve.endpoints.rerank import rerank
from paredown.serve.endpoints.responses import count_input_tokens, respond
from paredown.serve.endpoints.score import score
from paredown.serve.endpoints.stored_responses import (
    delete_response,
    list_input_items,
    show_response,
)
from paredown.serve.page.assets import page_routes
from paredown.serve.state import ServerState
from paredown.serve.watch.metrics import show_metrics

AnyState = ServerState | EncoderState


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
        state.worker.start(on_worker_change)
        yield
        state.worker.stop()

    app = Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/metrics", show_metrics, methods=["GET"]),
            Route("/report", report, methods=["GET"]),
            Route("/v1/models", list_models, methods=["GET"]),
            Route("/v1/models/{name:path}", show_model, methods=["GET"]),
            Route("/v1/completions", complete, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/responses", respond, methods=["POST"]),
            Route("/v1/responses/input_tokens", count_input_tokens, methods=["POST"]),
            Route("/v1/responses/{id}", show_response, methods=["GET"]),
            Route("/v1/responses/{id}", delete_response, methods=["DELETE"]),
            Route("/v1/responses/{id}/input_items", list_input_items, methods=["GET"]),
            Route("/v1/messages", create_message, methods=["POST"]),
            Route("/v1/messages/count_tokens", count_message_tokens, methods=["POST"]),
            Route("/v1/embeddings", embed, methods=["POST"]),
            Route("/v1/rerank", rerank, methods=["POST"]),
            Route("/rerank", rerank, methods=["POST"]),
            Route("/v1/score", score, methods=["POST"]),
            Route("/v1/classify", classify, methods=["POST"]),
            *(page_routes(generates=isinstance(state, ServerState)) if page else ()),
        ],
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
    return app


async def health(request: Request) -> Response:
    """Returns 200 when requests are answered. Returns 503 while the model is loading, when its
    thread has died, and when a step hangs, which is judged by the engine's progress."""
    state: AnyState = request.app.state.server
    status = state.worker.status
    return JSONResponse({"status": status}, status_code=200 if status == "ready" else 503)


async def list_models(request: Request) -> Response:
    state: AnyState = request.app.state.server
    return JSONResponse({"object": "list", "data": [_model(state)]})


async def show_model(request: Request) -> Response:
    state: AnyState = request.app.state.server
    state.check_model(request.path_params["name"])
    return JSONResponse(_model(state))


def _model(state: AnyState) -> dict[str, object]:
    return {
        "id": state.model_name,
        "object": "model",
        "created": state.created_s,
        "owned_by": "paredown",
        "max_model_len": state.max_positions,
    }
