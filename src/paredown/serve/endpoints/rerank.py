"""POST /v1/rerank and /rerank: documents by their score for a query, as Jina and Cohere answer."""

import secrets
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.engine.encode.rerank_job import RankedDocument, rerank_job
from paredown.serve.endpoints.encode_request import run_texts
from paredown.serve.schema.encoder import RerankRequest
from paredown.serve.task_state import encoder_state


async def rerank(request: Request) -> Response:
    state = encoder_state(request)
    asked = await state.intake.read_plain(request, RerankRequest, state.max_positions)
    documents = asked.texts
    make = partial(
        rerank_job,
        state.model,
        asked.query,
        documents,
        top_n=asked.top_n,
        truncate=asked.truncate or "end",
    )
    found = await run_texts(
        state, request, asked, [asked.query, *documents], make, field="documents"
    )
    cut = frozenset(found.documents.cut)
    results = [
        _result(one, with_text=bool(asked.return_documents), is_cut=one.index in cut)
        for one in found.results
    ]
    return JSONResponse(
        {
            "id": f"rerank-{secrets.token_hex(16)}",
            "object": "list",
            "model": state.model_name,
            "results": results,
            "usage": {"prompt_tokens": found.total_tokens, "total_tokens": found.total_tokens},
        }
    )


def _result(one: RankedDocument, *, with_text: bool, is_cut: bool) -> dict[str, object]:
    result: dict[str, object] = {"index": one.index, "relevance_score": one.score}
    if with_text:
        result["document"] = {"text": one.document}
    if is_cut:
        result["truncated"] = True
    return result
