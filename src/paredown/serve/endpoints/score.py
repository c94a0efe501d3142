"""POST /v1/score: how well texts fit each other, as vLLM answers."""

import secrets
import time
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.engine.encode.score_job import score_job
from paredown.engine.encoder import as_strings
from paredown.serve.endpoints.encode_request import run_texts
from paredown.serve.schema.encoder import ScoreRequest
from paredown.serve.task_state import encoder_state


async def score(request: Request) -> Response:
    state = encoder_state(request)
    asked = await state.intake.read_plain(request, ScoreRequest, state.max_positions)
    first, second = as_strings(asked.text_1), as_strings(asked.text_2)
    make = partial(score_job, state.model, first, second, truncate=asked.truncate or "refuse")
    found = await run_texts(state, request, asked, first + second, make, field="text_2")
    body: dict[str, object] = {
        "id": f"score-{secrets.token_hex(16)}",
        "object": "list",
        "created": int(time.time()),
        "model": state.model_name,
        "data": [
            {"index": number, "object": "score", "score": value}
            for number, value in enumerate(found.scores.tolist())
        ],
        "usage": {"prompt_tokens": found.total_tokens, "total_tokens": found.total_tokens},
    }
    if found.documents.cut:
        body["truncated"] = list(found.documents.cut)
    return JSONResponse(body)
