"""RequestOutput: what one step of the engine added to one request."""

from collections.abc import Sequence
from dataclasses import dataclass

from paredown.engine.request import FinishReason, Request
from paredown.executors.sampler import Logprobs


@dataclass(slots=True)
class RequestOutput:
    """`text` may be empty while a cut character or a possible stop string is held back.

    `finish_reason` is set in the last output of a request, `stop` when a stop string ended it, and
    `error` when the reason is "error";
    `is_request_fault` says that the request's own settings or token filter caused it, not the
    model. `prompt_logprobs` come with the first token, one for each prompt token but the first.
    """

    request: Request
    text: str
    token_ids: list[int]
    logprobs: Sequence[Logprobs] = ()
    prompt_logprobs: Sequence[Logprobs] = ()
    finish_reason: FinishReason | None = None
    stop: str | None = None
    error: str | None = None
    is_request_fault: bool = False
