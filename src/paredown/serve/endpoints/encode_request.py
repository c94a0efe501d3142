"""Runs one request of an encoder's endpoint: its texts become a job, and the job an answer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from starlette.requests import Request

from paredown.engine.encode.encode_job import EncodeJob
from paredown.engine.encode.encoder_model import WrongTaskError
from paredown.engine.encode.run_batch import ModelFailedError
from paredown.engine.sampling.field_rules import ParameterError
from paredown.errors import RequestError
from paredown.serve.encoder_state import EncoderState
from paredown.serve.errors import HttpError
from paredown.serve.intake.disconnect import run_until_disconnect
from paredown.serve.schema.encoder import EncoderRequest
from paredown.serve.watch.request_record import RequestRecord

T = TypeVar("T")
# A shorter job ends before it is worth to watch whether its client hangs up.
MAX_UNWATCHED_TOKENS = 512


async def run_texts(
    state: EncoderState,
    request: Request,
    asked: EncoderRequest,
    texts: Sequence[object],
    make: Callable[[], EncodeJob[T]],
    *,
    field: str,
) -> T:
    """Returns the answer to what `make` makes of `texts`, which came in `field`. Raises HttpError
    for texts that cannot be read, QueueFullError, UnavailableError and ModelFailedError."""
    state.check_model(asked.model)
    state.worker.check_room(len(texts))
    size = sum(len(text) if isinstance(text, str | list) else 1 for text in texts)
    with blaming(field):
        job = await state.intake.tokenize(
            request, state.model.tokenizer, size, lambda wanted: make()
        )
    RequestRecord.of(request.scope).note_prompt(job.num_tokens)
    running = state.worker.run(job, state.tenant(asked.user, request))
    if job.num_tokens <= MAX_UNWATCHED_TOKENS:
        return await running
    return await run_until_disconnect(request.receive, running)


@contextmanager
def blaming(field: str) -> Iterator[None]:
    """Names the field in errors about texts."""
    try:
        yield
    except (ParameterError, WrongTaskError, ModelFailedError):
        raise
    except RequestError as error:
        raise HttpError(400, str(error), param=field, code="invalid_value") from error
