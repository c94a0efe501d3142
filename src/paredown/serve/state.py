"""ServerState: what every endpoint shares."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from paredown.engine.prompt import PromptTokenizer
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.service import Service
from paredown.engine.worker import Job, Worker
from paredown.models.text.tokenizer import LONG_TEXT_CHARS
from paredown.serve.errors import HttpError
from paredown.shown import quoted

MAX_JOBS = 128
T = TypeVar("T")


class ServerTokenizer(PromptTokenizer, Protocol):
    """What the HTTP edge needs of a tokenizer."""

    @property
    def has_chat_template(self) -> bool: ...

    def decode(self, token_ids: list[int], /) -> str: ...


@dataclass(frozen=True, kw_only=True)
class ServerState:
    model_name: str
    max_positions: int
    tokenizer: ServerTokenizer
    worker: Worker
    created_s: int = field(default_factory=lambda: int(time.time()))

    def check_model(self, name: str | None) -> None:
        """Raises HttpError 404 when a request names another model than the one that is here."""
        if name is not None and name != self.model_name:
            raise HttpError(
                404,
                f"there is no model {quoted(name, 200)} here; this server has {self.model_name!r}",
                param="model",
                code="model_not_found",
            )


async def tokenize(encode: Callable[[], T], num_chars: int) -> T:
    """What `encode` gives for all the texts of a request. Where these are long it is called in
    another thread, so that the event loop goes on."""
    return encode() if num_chars < LONG_TEXT_CHARS else await asyncio.to_thread(encode)


def make_jobs(prompts: list[list[int]], params: SamplingParams, service: Service) -> list[Job]:
    """A job for each prompt, of `params.n` answers."""
    if len(prompts) * params.n > MAX_JOBS:
        raise HttpError(
            400,
            f"{len(prompts)} prompts x {params.n} choices, at most {MAX_JOBS} together",
            param="n",
        )
    return [Job(prompt, params, service) for prompt in prompts]
