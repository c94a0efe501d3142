"""GET and DELETE /v1/responses/ID, and the items that a response was asked with."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.serve.answers.json_stream import to_json
from paredown.serve.errors import HttpError
from paredown.serve.task_state import generation_state

DEFAULT_LIMIT, MAX_LIMIT = 20, 100


async def show_response(request: Request) -> Response:
    state = generation_state(request)
    if request.query_params.get("stream", "false") != "false":
        raise HttpError(400, "a stored response is not streamed", param="stream")
    stored = state.responses.get(request.path_params["id"], state.owner(request))
    return Response(stored.text, media_type="application/json")


async def delete_response(request: Request) -> Response:
    state = generation_state(request)
    response_id = request.path_params["id"]
    state.responses.delete(response_id, state.owner(request))
    return JSONResponse({"id": response_id, "object": "response", "deleted": True})


async def list_input_items(request: Request) -> Response:
    """Lists the last items first; `after` is the id behind which the list begins."""
    state = generation_state(request)
    stored = state.responses.get(request.path_params["id"], state.owner(request))
    query = request.query_params
    items = list(stored.items)
    if _order(query.get("order", "desc")) == "desc":
        items.reverse()
    after = query.get("after")
    if after is not None:
        places = [number for number, (item_id, _) in enumerate(items) if item_id == after]
        if not places:
            raise HttpError(400, "there is no such item in the response", param="after")
        items = items[places[0] + 1 :]
    limit = _limit(query.get("limit", str(DEFAULT_LIMIT)))
    shown = items[:limit]
    around = {
        "object": "list",
        "first_id": shown[0][0] if shown else None,
        "last_id": shown[-1][0] if shown else None,
        "has_more": len(items) > limit,
    }
    data = ",".join(text for _, text in shown)
    return Response(f'{to_json(around)[:-1]},"data":[{data}]}}', media_type="application/json")


def _order(text: str) -> str:
    if text not in ("asc", "desc"):
        raise HttpError(400, "order is asc or desc", param="order", code="invalid_value")
    return text


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= MAX_LIMIT):
        raise HttpError(
            400, f"limit is an integer from 1 to {MAX_LIMIT}", param="limit", code="invalid_value"
        )
    return int(text)
