"""Finds the state of an endpoint, and refuses endpoints that the model has no task for."""

from starlette.requests import Request

from paredown.serve.encoder_state import EncoderState
from paredown.serve.errors import HttpError
from paredown.serve.state import ServerState

AnyState = ServerState | EncoderState
GENERATION_ROUTES = ("/v1/completions", "/v1/chat/completions")
ENCODER_ROUTES = ("/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/classify")


def generation_state(request: Request) -> ServerState:
    """Returns the state of a model that generates. Raises HttpError 400 for an encoder."""
    state = request.app.state.server
    if not isinstance(state, ServerState):
        raise _wrong_task(state.model_name, "it does not generate", ENCODER_ROUTES)
    return state


def encoder_state(request: Request) -> EncoderState:
    """Returns the state of an encoder. Raises HttpError 400 for a model that generates."""
    state = request.app.state.server
    if not isinstance(state, EncoderState):
        why = "it generates, and makes no vectors or scores"
        if not state.is_encoder_decoder:
            why += " unless it is served with --task embed"
        raise _wrong_task(state.model_name, why, GENERATION_ROUTES)
    return state


def _wrong_task(name: str, why: str, routes: tuple[str, ...]) -> HttpError:
    return HttpError(
        400,
        f"this is no route of model '{name}': {why}. Ask {', '.join(routes)}.",
        param="model",
        code="wrong_task",
    )
