"""EncoderState: what the endpoints of an encoder share."""

import time
from dataclasses import dataclass, field

from starlette.requests import Request

from paredown.engine.encode.encoder_model import EncoderModel
from paredown.engine.encode.encoder_worker import EncoderWorker
from paredown.serve.doors.places import address_group
from paredown.serve.intake.intake import Intake
from paredown.serve.model_report import ModelReport
from paredown.serve.state import check_model_name
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

    @property
    def max_positions(self) -> int:
        """The longest text in tokens."""
        return self.model.settings.max_tokens

    def check_model(self, name: str | None) -> None:
        """Raises HttpError 404 when a request names another model than this one."""
        check_model_name(name, self.model_name)

    def tenant(self, user: str | None, request: Request) -> str:
        """Returns the party that a request counts for: an unnamed one is the client's address."""
        return user or address_group(request.client.host if request.client else "")
