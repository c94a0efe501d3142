"""Intake: what requests share on their way in. Each piece of work is bounded before it begins:
bodies in bytes and values, texts in length, long work in how much of it waits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import Request

from paredown.engine.prompt import PromptTokenizer
from paredown.models.text.tokenizer import LONG_TEXT_CHARS
from paredown.serve.doors.places import address_group
from paredown.serve.errors import HttpError
from paredown.serve.intake.body import SHORT_BODY_BYTES, parse_json, read_body
from paredown.serve.intake.budget import Budget
from paredown.serve.intake.pacer import Pacer
from paredown.serve.intake.side_thread import SideThread, Wanted
from paredown.serve.intake.value_counts import ValueLimits
from paredown.serve.schema.completion import MAX_PROMPTS
from paredown.serve.schema.encoder import MAX_TEXTS, EncoderRequest
from paredown.serve.schema.message import MAX_MESSAGES
from paredown.serve.schema.strict import parse

T = TypeVar("T")
B = TypeVar("B", bound=EncoderRequest)
MAX_JOBS = 128
# Long bodies that are being received or parsed, of all clients together.
MAX_BYTES = 64_000_000
# Those of one address, which may send them as slowly as it likes.
MAX_BYTES_OF_ADDRESS = 12_000_000
# Log-probabilities that answers under way may come to, 12 bytes each.
MAX_LOGPROBS = 2**24
# A message may be two keys and two values, or have parts of as many; and itself, a list and parts.
MAX_STRINGS = 16 * MAX_MESSAGES
MAX_CONTAINERS = 4 * MAX_MESSAGES
# Beside prompts: more than any vocabulary, which is what a list of allowed tokens may hold.
MAX_LISTED = 300_000


def _bodies() -> Budget:
    return Budget(MAX_BYTES, "bytes of long bodies", MAX_BYTES_OF_ADDRESS)


def _kept_texts() -> Budget:
    return Budget(MAX_BYTES, "bytes of conversations and tools", MAX_BYTES_OF_ADDRESS)


@dataclass(frozen=True)
class Intake:
    """Bodies, conversations and texts have a thread each: a body is parsed in a moment, the others
    take longer."""

    bodies: Budget = field(default_factory=_bodies)
    # What answers under way keep of what they were asked with: tools, and what will be stored.
    kept_texts: Budget = field(default_factory=_kept_texts)
    logprobs: Budget = field(default_factory=lambda: Budget(MAX_LOGPROBS, "log-probabilities"))
    parsing: SideThread = field(default_factory=lambda: SideThread("parsing"))
    rendering: SideThread = field(default_factory=lambda: SideThread("rendering"))
    tokenizing: SideThread = field(default_factory=lambda: SideThread("tokenizing"))
    pacer: Pacer = field(default_factory=Pacer)

    async def read(
        self, request: Request, read_body: Callable[[object], T], max_positions: int
    ) -> T:
        """Returns the result of `read_body` for the body, which is JSON. Raises HttpError for what
        cannot be served, QueueFullError where others' bodies leave no room."""
        num_values = MAX_PROMPTS * max_positions + MAX_LISTED
        return await self._read(request, num_values, lambda body: read_body(parse_json(body)))

    async def read_plain(self, request: Request, model: type[B], max_positions: int) -> B:
        """The body of an encoder's endpoint as `model`. Raises what `read` raises."""
        num_values = MAX_TEXTS * max_positions
        return await self._read(request, num_values, lambda body: parse(model, parse_json(body)))

    async def _read(self, request: Request, num_values: int, parse_body: Callable[[bytes], T]) -> T:
        limits = ValueLimits(
            num_strings=MAX_STRINGS, num_containers=MAX_CONTAINERS, num_values=num_values
        )
        address = address_group(request.client.host if request.client else "")
        with self.bodies.hold(address) as held:
            body = await read_body(request, limits, held, self.pacer)
            if len(body) <= SHORT_BODY_BYTES:
                return parse_body(body)
            return await self.parsing.run(
                request.receive, len(body), lambda wanted: parse_body(body)
            )

    async def render(self, request: Request, num_chars: int, render: Callable[[Wanted], T]) -> T:
        """Returns the result of `render` for a conversation of about so many characters. The
        template is the model's program: a thread waits for it. Long conversations have one thread,
        and one whose client has gone is not begun."""
        if num_chars < LONG_TEXT_CHARS:
            return await asyncio.to_thread(render, Wanted())
        return await self.rendering.run(request.receive, num_chars, render)

    async def tokenize(
        self,
        request: Request,
        tokenizer: PromptTokenizer,
        size: int,
        encode: Callable[[Wanted], T],
    ) -> T:
        """Returns the result of `encode` for all texts of a request, `size` characters in total.
        Long texts, or a tokenizer in its own process, are handled in another thread when their turn
        has come."""
        if size < LONG_TEXT_CHARS and getattr(tokenizer, "encodes_here", True):
            return encode(Wanted())
        return await self.tokenizing.run(request.receive, size, encode)


def check_num_jobs(num_prompts: int, num_choices: int) -> None:
    """Raises HttpError for more answers than one request may ask for."""
    if num_prompts * num_choices > MAX_JOBS:
        raise HttpError(
            400,
            f"{num_prompts} prompts x {num_choices} choices, at most {MAX_JOBS} together",
            param="n",
        )
