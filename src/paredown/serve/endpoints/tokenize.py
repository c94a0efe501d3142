"""POST /tokenize: the tokens of a text or a conversation, as vLLM and llama.cpp answer."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.engine.placed_tokens import own_text
from paredown.engine.prompt import check_length, encode_prompt
from paredown.serve.intake.chat_turn import encode_chat
from paredown.serve.schema.tokenize import read_tokenize
from paredown.serve.state import ServerState
from paredown.serve.task_state import generation_state


async def tokenize(request: Request) -> Response:
    state = generation_state(request)
    asked = await state.intake.read(request, read_tokenize, state.max_positions)
    state.check_model(asked.model)
    tokenizer = state.tokenizer
    if asked.text is None:
        tokens = await encode_chat(state, request, asked.chat())
        if asked.add_special_tokens:
            tokens = [*tokenizer.prompt_prefix, *tokens, *tokenizer.prompt_suffix]
    else:
        tokens = await _encode(state, request, asked.text, surrounds=asked.surrounds)
    strings = list(map(tokenizer.token_string, tokens)) if asked.return_token_strs else None
    return JSONResponse(
        {
            "count": len(tokens),
            "max_model_len": state.max_positions,
            "tokens": [_piece(state, one) for one in tokens] if asked.with_pieces else tokens,
            "token_strs": strings,
        }
    )


def _piece(state: ServerState, token_id: int) -> dict[str, object]:
    """Returns a token with its text, or its bytes where they are no whole characters."""
    text = own_text(state.tokenizer, token_id)
    return {"id": token_id, "piece": text if isinstance(text, str) else list(text)}


async def _encode(state: ServerState, request: Request, text: str, *, surrounds: bool) -> list[int]:
    tokenizer = state.tokenizer
    check_length(tokenizer, text, state.worker.max_prompt_tokens)
    return await state.intake.tokenize(
        request,
        tokenizer,
        len(text),
        lambda wanted: encode_prompt(tokenizer, text) if surrounds else tokenizer.encode(text),
    )
