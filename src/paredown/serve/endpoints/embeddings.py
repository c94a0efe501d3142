"""POST /v1/embeddings: a vector for each text."""

from base64 import b64encode
from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pydantic_core
from starlette.requests import Request
from starlette.responses import Response

from paredown.engine.encode.embed_job import Embeddings, embed_job
from paredown.serve.answers.json_stream import json_stream, to_json
from paredown.serve.endpoints.encode_request import run_texts
from paredown.serve.schema.encoder import EmbeddingRequest
from paredown.serve.task_state import encoder_state

# Answers of at most this many numbers are written at once, in a few milliseconds.
MAX_INLINE_NUMBERS = {"float": 2**15, "base64": 2**19}


async def embed(request: Request) -> Response:
    state = encoder_state(request)
    asked = await state.intake.read_plain(request, EmbeddingRequest, state.max_positions)
    texts = asked.texts
    make = partial(
        embed_job,
        state.model,
        texts,
        prompts=asked.prompts,
        dimensions=asked.dimensions,
        truncate=asked.truncate or "refuse",
    )
    found = await run_texts(state, request, asked, texts, make, field="input")
    encoding = asked.encoding_format or "float"
    pieces = _json(found, encoding, state.model_name)
    if found.vectors.size <= MAX_INLINE_NUMBERS[encoding]:
        return Response("".join(pieces), media_type="application/json")
    return json_stream(state.intake.pacer.pieces(pieces), close=lambda: None)


def _json(found: Embeddings, encoding: str, model_name: str) -> Iterator[str]:
    write = _base64 if encoding == "base64" else _floats
    num_tokens = found.counts.total_tokens
    yield '{"object":"list","data":['
    for number, vector in enumerate(found.vectors):
        comma = "," if number else ""
        yield f'{comma}{{"object":"embedding","index":{number},"embedding":{write(vector)}}}'
    rest: dict[str, object] = {
        "model": model_name,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }
    if found.counts.cut:
        rest["truncated"] = list(found.counts.cut)
    yield "]," + to_json(rest)[1:]


def _base64(vector: npt.NDArray[np.float32]) -> str:
    """Returns the little-endian float32 in base64, as the OpenAI API sends them."""
    return f'"{b64encode(vector.astype("<f4", copy=False).tobytes()).decode()}"'


def _floats(vector: npt.NDArray[np.float32]) -> str:
    return pydantic_core.to_json(vector.tolist()).decode()
