"""POST /v1/classify: the labels of texts, as vLLM answers."""

import secrets
import time
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.engine.encode.classify_job import classify_job
from paredown.serve.endpoints.encode_request import run_texts
from paredown.serve.schema.encoder import ClassifyRequest
from paredown.serve.task_state import encoder_state


async def classify(request: Request) -> Response:
    state = encoder_state(request)
    asked = await state.intake.read_plain(request, ClassifyRequest, state.max_positions)
    texts = asked.texts
    make = partial(classify_job, state.model, texts, truncate=asked.truncate or "refuse")
    found = await run_texts(state, request, asked, texts, make, field="input")
    num_tokens = found.counts.total_tokens
    body: dict[str, object] = {
        "id": f"classify-{secrets.token_hex(16)}",
        "object": "list",
        "created": int(time.time()),
        "model": state.model_name,
        "data": [
            {"index": number, "label": label, "probs": row, "num_classes": len(row)}
            for number, (label, row) in enumerate(
                zip(found.labels, found.probabilities.tolist(), strict=True)
            )
        ],
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }
    if found.counts.cut:
        body["truncated"] = list(found.counts.cut)
    return JSONResponse(body)
