"""EngineStep: what one step of the engine computes, and for whom."""

from dataclasses import dataclass, field

from paredown.engine.active_request import ActiveRequest
from paredown.executors.protocol import SequenceSlice
from paredown.executors.sampler import SamplingState


@dataclass(slots=True)
class EngineStep:
    """One step. `turns` are the requests that may draw their next token, with their `states`. In a
    plain step these own all rows, in order, and `token_ids` are what they drew."""

    active: list[ActiveRequest] = field(default_factory=list)
    slices: list[SequenceSlice] = field(default_factory=list)
    turns: list[ActiveRequest] = field(default_factory=list)
    states: list[SamplingState] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    num_rows: int = 0
    is_plain: bool = True
