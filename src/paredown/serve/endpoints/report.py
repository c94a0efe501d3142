"""GET /report: the model served, how it runs, and what its compression cost."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.serve.encoder_state import EncoderState
from paredown.serve.state import ServerState


async def report(request: Request) -> Response:
    state: ServerState | EncoderState = request.app.state.server
    found = {} if state.report is None else state.report.as_json()
    return JSONResponse(
        {"model": state.model_name, "max_tokens": state.max_positions, **_task(state), **found}
    )


def _task(state: ServerState | EncoderState) -> dict[str, object]:
    """Returns what may be asked of the model. "makes" is the kind of an encoder's results."""
    if isinstance(state, ServerState):
        return {
            "task": "generate",
            "has_chat_template": state.tokenizer.has_chat_template,
            "reads_last_turn": state.tokenizer.reads_last_turn,
        }
    return {"task": "embed", "makes": state.model.kind, "num_labels": state.model.size}
