"""POST /detokenize: the text of tokens, control tokens written out, under the names that
vLLM and llama.cpp give it."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.engine.prompt import USUAL_MAX_TOKEN_BYTES, as_token_ids
from paredown.serve.errors import HttpError
from paredown.serve.schema.tokenize import read_detokenize
from paredown.serve.state import ServerState
from paredown.serve.task_state import generation_state

# More text than any conversation has: a token may be long, and stand in the list many times.
MAX_TEXT_BYTES = 64_000_000


async def detokenize(request: Request) -> Response:
    state = generation_state(request)
    asked = await state.intake.read(request, read_detokenize, state.max_positions)
    state.check_model(asked.model)
    _check_size(state, len(asked.tokens))
    tokens = as_token_ids(asked.tokens, state.worker.vocab_size)
    text = await state.intake.tokenize(
        request,
        state.tokenizer,
        len(tokens),
        lambda wanted: state.tokenizer.decode(tokens, False),
    )
    return JSONResponse({"prompt": text, "content": text})


def _check_size(state: ServerState, num_tokens: int) -> None:
    """Raises HttpError for tokens that could become more text than is ever needed."""
    max_token_bytes = state.tokenizer.max_token_bytes or USUAL_MAX_TOKEN_BYTES
    most = min(state.max_positions, MAX_TEXT_BYTES // max_token_bytes)
    if num_tokens > most:
        raise HttpError(
            400,
            f"tokens holds {num_tokens} tokens, at most {most}; send them in parts",
            param="tokens",
            code="invalid_value",
        )
