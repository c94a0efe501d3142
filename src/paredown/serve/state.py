"""ServerState: the state that all endpoints share."""

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import Protocol

from starlette.requests import Request

from paredown.engine.prompt import PromptTokenizer
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.schedule.service import Service
from paredown.engine.worker import Worker
from paredown.models.chat.rendered_chat import RenderedChat
from paredown.models.chat.turn_format import TurnFormat
from paredown.models.text.fill_in_middle import FillInMiddle
from paredown.serve.answers.response_cache import ResponseCache
from paredown.serve.answers.token_parts import Parts, TokenParts
from paredown.serve.answers.usage import UsageDetails
from paredown.serve.caller import Caller
from paredown.serve.intake.grammars import ServerGrammars
from paredown.serve.intake.intake import Intake
from paredown.serve.intake.token_bound import TokenBound
from paredown.serve.model_report import ModelReport
from paredown.serve.other_names import OtherNames
from paredown.serve.response_store import ResponseStore
from paredown.serve.watch.answer_stats import AnswerStats
from paredown.serve.watch.coarse import CoarseNumbers
from paredown.serve.watch.utilization_gauges import UtilizationGauges

# The least time between two messages of all streams together, on average.
EVENT_S = 0.0005


class ServerTokenizer(PromptTokenizer, Protocol):
    """The part of a tokenizer that the server uses."""

    @property
    def has_chat_template(self) -> bool: ...

    @property
    def reads_last_turn(self) -> bool:
        """Whether a chat's turns before the user's last message are left out."""
        ...

    @property
    def fill_in_middle(self) -> FillInMiddle | None:
        """The tokens that stand around the texts before and after a gap, or None."""
        ...

    def token_string(self, token_id: int, /) -> str | None:
        """Returns the token as the vocabulary writes it, or None for an id without a token."""
        ...

    @property
    def turn_format(self) -> TurnFormat:
        """How the model writes calls of tools and reasoning; found at the first call."""
        ...

    def render_marked(
        self,
        messages: list[dict[str, object]],
        tools: list[dict[str, object]] | None = None,
        /,
        *,
        template_values: Mapping[str, object] | None = None,
    ) -> RenderedChat:
        """Renders a conversation in which control tokens of clients are only text."""
        ...

    @property
    def control_ids(self) -> Mapping[str, int]:
        """The ids of control tokens by their texts."""
        ...

    def encode_rendered(self, chat: RenderedChat, /) -> list[int]: ...

    @property
    def template_value_names(self) -> frozenset[str]:
        """The names that the chat template reads beside those of every chat."""
        ...

    def decode(self, token_ids: list[int], skip_special_tokens: bool = True, /) -> str: ...


@dataclass(frozen=True, kw_only=True)
class ServerState:
    model_name: str
    max_positions: int
    tokenizer: ServerTokenizer
    worker: Worker
    # Whether an encoder reads the prompt: answers do not go on with it.
    is_encoder_decoder: bool = False
    intake: Intake = field(default_factory=Intake)
    # Keyed by the format that writes them.
    token_parts: dict[str, TokenParts] = field(default_factory=dict)
    token_bound: TokenBound = field(default_factory=TokenBound)
    # What holds for fields of sampling that a request leaves out.
    sampling_defaults: SamplingDefaults = field(default_factory=SamplingDefaults)
    # What /report tells besides the model's name.
    report: ModelReport | None = None
    # Whether a client only finds its own prefixes in the cache.
    isolates_prefixes: bool = False
    shows_exact_metrics: bool = False
    # Whether each answer has its times, asked for or not.
    tells_timings: bool = False
    response_cache: ResponseCache | None = None
    # The least time between two messages of a stream: what comes meanwhile goes together. With
    # many streams it is as long as `EVENT_S` for each of them.
    event_interval_s: float = 0.004
    coarse_numbers: CoarseNumbers = field(default_factory=CoarseNumbers)
    responses: ResponseStore = field(default_factory=ResponseStore)
    answer_stats: AnswerStats = field(default_factory=AnswerStats)
    utilization: UtilizationGauges = field(default_factory=UtilizationGauges)
    created_s: int = field(default_factory=lambda: int(time.time()))
    other_names: OtherNames = field(default_factory=OtherNames)
    # Set once the server is told to stop.
    stopping: Event = field(default_factory=Event)
    # Keeps clients from naming another's salt.
    secret: bytes = field(default_factory=secrets.token_bytes, repr=False)

    @cached_property
    def grammars(self) -> ServerGrammars:
        """Compiles the grammars of requests."""
        return ServerGrammars(self.worker)

    def check_model(self, name: str | None) -> None:
        """Raises HttpError 404 when a request names another model than this one."""
        self.other_names.check(name, self.model_name)

    def service(self, asked: Service, request: Request, num_answers: int) -> Service:
        """Completes `asked` for its sender: an unnamed tenant is its caller. Where prefixes are
        isolated, clients without a salt share them only with the same tenant of the same caller."""
        caller = Caller.of(request)
        salt = asked.cache_salt
        if self.isolates_prefixes and not salt:
            whose = f"{caller.scope} {asked.tenant}".encode()
            salt = hmac.digest(self.secret, whose, "sha256").hex()
        return replace(
            asked, tenant=asked.tenant or caller.tenant, cache_salt=salt, num_together=num_answers
        )

    def owner(self, request: Request) -> str:
        """Returns who owns what a request stores: whoever has its key. Without keys an id that
        nobody can guess is all that it takes."""
        return Caller.of(request).key_name

    @property
    def usage_details(self) -> UsageDetails:
        """Returns what an answer may tell of its work. What the prefix cache and drafts from
        earlier answers found is told only where it is the caller's own, or all may know."""
        tells_prefixes = self.isolates_prefixes or self.shows_exact_metrics
        engine = self.worker.engine
        speculator = None if engine is None else engine.speculator
        return UsageDetails(
            tells_prefixes=tells_prefixes,
            tells_drafts=speculator is not None
            and (tells_prefixes or speculator.config.kind != "suffix"),
        )

    def event_interval(self) -> float:
        """Returns the least time between two messages of a stream now, in seconds. A message takes
        0.1 ms of server and client together, so that they never take more than a fifth of a
        processor from the engine."""
        if not self.event_interval_s:
            return 0.0
        return max(self.event_interval_s, self.worker.num_open_answers * EVENT_S)

    def token_parts_of(self, name: str, write: Callable[[str | bytes], Parts]) -> TokenParts:
        """Returns the parts of that format, one table for all its answers."""
        if name not in self.token_parts:
            self.token_parts[name] = TokenParts(self.tokenizer, write)
        return self.token_parts[name]
