"""EncoderState: what the endpoints of an encoder share."""

import time
from dataclasses import dataclass, field
from threading import Event

from starlette.requests import Request

from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.encoder_worker import EncoderWorker
from paredown.serve.caller import Caller
from paredown.serve.intake.intake import Intake
from paredown.serve.model_report import ModelReport
from paredown.serve.other_names import OtherNames
from paredown.serve.watch.coarse import CoarseNumbers


@dataclass(frozen=True, kw_only=True)
class EncoderState:
    model_name: str
    model: EncoderModel
    worker: EncoderWorker
    intake: Intake = field(default_factory=Intake)
    # What /report tells besides the model's name.
    report: ModelReport | None = None
    shows_exact_metrics: bool = False
    coarse_numbers: CoarseNumbers = field(default_factory=CoarseNumbers)
    created_s: int = field(default_factory=lambda: int(time.time()))
    other_names: OtherNames = field(default_factory=OtherNames)
    # Set once the server is told to stop.
    stopping: Event = field(default_factory=Event)

    @property
    def max_positions(self) -> int:
        """The longest text in tokens."""
        return self.model.settings.max_tokens

    def check_model(self, name: str | None) -> None:
        """Raises HttpError 404 when a request names another model than this one."""
        self.other_names.check(name, self.model_name)

    def tenant(self, user: str | None, request: Request) -> str:
        """Returns the party that a request counts for: an unnamed one is its caller."""
        return user or Caller.of(request).tenant
