"""GET /v1/models: the names that the server answers to."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.serve.task_state import AnyState


async def list_models(request: Request) -> Response:
    state: AnyState = request.app.state.server
    names = (state.model_name, *state.other_names.aliases)
    return JSONResponse({"object": "list", "data": [_model(state, name) for name in names]})


async def show_model(request: Request) -> Response:
    state: AnyState = request.app.state.server
    name: str = request.path_params["name"]
    state.check_model(name)
    return JSONResponse(_model(state, name))


def _model(state: AnyState, name: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": state.created_s,
        "owned_by": "paredown",
        "max_model_len": state.max_positions,
    }
