"""The table of endpoints: every route of the server but the files of its page."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from paredown.serve.endpoint import Endpoint
from paredown.serve.endpoints.chat import chat
from paredown.serve.endpoints.classify import classify
from paredown.serve.endpoints.completions import complete
from paredown.serve.endpoints.detokenize import detokenize
from paredown.serve.endpoints.embeddings import embed
from paredown.serve.endpoints.messages import count_message_tokens, create_message
from paredown.serve.endpoints.models import list_models, show_model
from paredown.serve.endpoints.readiness import health, ready, show_version
from paredown.serve.endpoints.report import report
from paredown.serve.endpoints.rerank import rerank
from paredown.serve.endpoints.responses import count_input_tokens, respond
from paredown.serve.endpoints.score import score
from paredown.serve.endpoints.stored_responses import (
    MAX_LIMIT,
    delete_response,
    list_input_items,
    show_response,
)
from paredown.serve.endpoints.tokenize import tokenize
from paredown.serve.openapi.document import openapi_document
from paredown.serve.schema.answers.chat import ChatCompletion, ChatCompletionChunk
from paredown.serve.schema.answers.completion import Completion
from paredown.serve.schema.answers.encoder import (
    Classification,
    EmbeddingList,
    Ranking,
    ScoreList,
)
from paredown.serve.schema.answers.message import (
    MessageBody,
    MessageErrorAnswer,
    MessageEvent,
    MessageTokens,
)
from paredown.serve.schema.answers.response import (
    DeletedResponse,
    InputItems,
    InputTokens,
    ResponseBody,
    ResponseEvent,
)
from paredown.serve.schema.answers.server import (
    Health,
    Model,
    ModelList,
    OpenApiDocument,
    Report,
    Version,
)
from paredown.serve.schema.answers.tokens import Tokens, TokensText
from paredown.serve.schema.chat import ChatRequest
from paredown.serve.schema.completion import CompletionRequest
from paredown.serve.schema.encoder import (
    ClassifyRequest,
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
)
from paredown.serve.schema.messages import MessageRequest, PromptOfMessage
from paredown.serve.schema.response import PromptOfResponse, ResponseRequest
from paredown.serve.schema.tokenize import DetokenizeRequest, TokenizeRequest
from paredown.serve.watch.metrics import CONTENT_TYPE, show_metrics


async def show_openapi(request: Request) -> Response:
    found = request.app.state.openapi
    if found is None:
        found = openapi_document(ENDPOINTS, has_keys=request.app.state.has_keys)
        request.app.state.openapi = found
    return JSONResponse(found)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/health",
        run=health,
        answer=Health,
        error=Health,
        summary="200 where requests are answered, 503 while loading or stuck",
        is_open=True,
    ),
    Endpoint(
        method="GET",
        path="/ready",
        run=ready,
        answer=Health,
        error=Health,
        summary="the same, and 503 once the server was told to stop",
        is_open=True,
    ),
    Endpoint(
        method="GET",
        path="/version",
        run=show_version,
        answer=Version,
        summary="the version of the server",
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        run=show_openapi,
        answer=OpenApiDocument,
        summary="this API as OpenAPI 3.1 tells it",
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        run=show_metrics,
        answer=CONTENT_TYPE,
        summary="counts and gauges as Prometheus reads them",
    ),
    Endpoint(
        method="GET",
        path="/report",
        run=report,
        answer=Report,
        summary="the model served, how it runs, and the figures of its verification.json",
    ),
    Endpoint(
        method="GET",
        path="/v1/models",
        run=list_models,
        answer=ModelList,
        summary="the one model by each of its names, with the tokens of its context",
    ),
    Endpoint(
        method="GET",
        path="/v1/models/{name:path}",
        run=show_model,
        answer=Model,
        summary="the same for that name, or 404",
    ),
    Endpoint(
        method="POST",
        path="/tokenize",
        run=tokenize,
        body=TokenizeRequest,
        answer=Tokens,
        summary="the tokens of a text or a conversation, as vLLM answers",
    ),
    Endpoint(
        method="POST",
        path="/detokenize",
        run=detokenize,
        body=DetokenizeRequest,
        answer=TokensText,
        summary="the text of tokens, as vLLM answers",
    ),
    Endpoint(
        method="POST",
        path="/v1/completions",
        run=complete,
        body=CompletionRequest,
        answer=Completion,
        piece=Completion,
        summary="continues texts or token ids",
    ),
    Endpoint(
        method="POST",
        path="/v1/chat/completions",
        run=chat,
        body=ChatRequest,
        answer=ChatCompletion,
        piece=ChatCompletionChunk,
        summary="the next turn of a conversation, for models with a chat template",
    ),
    Endpoint(
        method="POST",
        path="/v1/responses",
        run=respond,
        body=ResponseRequest,
        answer=ResponseBody,
        piece=ResponseEvent,
        summary="the next turn of a conversation, as a list of items",
    ),
    Endpoint(
        method="POST",
        path="/v1/responses/input_tokens",
        run=count_input_tokens,
        body=PromptOfResponse,
        answer=InputTokens,
        summary="how many tokens such a conversation has",
    ),
    Endpoint(
        method="GET",
        path="/v1/responses/{id}",
        run=show_response,
        answer=ResponseBody,
        query={"stream": {"const": False}},
        summary="a response that was stored, with `store`",
    ),
    Endpoint(
        method="DELETE",
        path="/v1/responses/{id}",
        run=delete_response,
        answer=DeletedResponse,
        summary="forgets it",
    ),
    Endpoint(
        method="GET",
        path="/v1/responses/{id}/input_items",
        run=list_input_items,
        answer=InputItems,
        query={
            "after": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
            "order": {"enum": ["asc", "desc"]},
        },
        summary="the items that it was asked with",
    ),
    Endpoint(
        method="POST",
        path="/v1/messages",
        run=create_message,
        body=MessageRequest,
        answer=MessageBody,
        piece=MessageEvent,
        error=MessageErrorAnswer,
        summary="the next turn of a conversation, as Anthropic's clients ask for it",
    ),
    Endpoint(
        method="POST",
        path="/v1/messages/count_tokens",
        run=count_message_tokens,
        body=PromptOfMessage,
        answer=MessageTokens,
        error=MessageErrorAnswer,
        summary="how many tokens such a conversation has",
    ),
    Endpoint(
        method="POST",
        path="/v1/embeddings",
        run=embed,
        body=EmbeddingRequest,
        answer=EmbeddingList,
        summary="a vector for each text, for encoders and decoders that embed",
    ),
    Endpoint(
        method="POST",
        path="/v1/rerank",
        run=rerank,
        body=RerankRequest,
        answer=Ranking,
        summary="documents by their score for a query, as Jina and Cohere answer",
    ),
    Endpoint(
        method="POST",
        path="/rerank",
        run=rerank,
        body=RerankRequest,
        answer=Ranking,
        summary="the same as /v1/rerank",
    ),
    Endpoint(
        method="POST",
        path="/v1/score",
        run=score,
        body=ScoreRequest,
        answer=ScoreList,
        summary="how well texts fit each other, as vLLM answers",
    ),
    Endpoint(
        method="POST",
        path="/v1/classify",
        run=classify,
        body=ClassifyRequest,
        answer=Classification,
        summary="the labels of texts with their probabilities, as vLLM answers",
    ),
)
