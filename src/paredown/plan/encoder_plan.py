"""Plans machines for an encoder: texts per second by format, from the time of a batch.

A text waits for at most the batch under way and its own, so two batches must end within the limit.
Machines are used to MAX_USE of what they can do, since texts do not come evenly.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paredown.cost.encoder_inspection import inspect_encoder
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.memory import MEMORY_SHARE
from paredown.cost.model_formats import ModelFormats
from paredown.engine.encode.batch_config import BatchConfig
from paredown.errors import ConfigError
from paredown.spec.model import ModelSpec

MAX_USE = 0.8


@dataclass(frozen=True, kw_only=True)
class TextDemand:
    """`texts_per_s` texts of `text_tokens` tokens, each answered within `limit_s`. Raises
    ConfigError for numbers out of range."""

    texts_per_s: float
    text_tokens: int
    limit_s: float

    def __post_init__(self) -> None:
        if not 0 < self.texts_per_s <= 1e9:
            raise ConfigError(
                "--rps is out of range", seen=self.texts_per_s, remedy="Use more than 0 texts."
            )


@dataclass(frozen=True, kw_only=True)
class EncoderOption:
    """A format on one machine. `num_texts` are encoded at once in `batch_s` seconds; 0 where even a
    single text takes too long, or the weights do not fit."""

    formats: ModelFormats
    weight_bytes: int
    num_texts: int = 0
    batch_s: float = 0.0

    @property
    def texts_per_s(self) -> float:
        """The texts that one machine is planned to answer."""
        return MAX_USE * self.num_texts / self.batch_s if self.num_texts else 0.0

    def num_machines(self, demand: TextDemand) -> int | None:
        """The machines that the demand needs; None where no number does."""
        return math.ceil(demand.texts_per_s / self.texts_per_s) if self.num_texts else None

    def as_json(self, demand: TextDemand) -> dict[str, Any]:
        return {
            "formats": asdict(self.formats),
            "weight_bytes": self.weight_bytes,
            "batch": self.num_texts,
            "batch_s": self.batch_s,
            "texts_per_s": self.texts_per_s,
            "tokens_per_s": self.texts_per_s * demand.text_tokens,
            "machines": self.num_machines(demand),
        }


def plan_encoder(
    spec: ModelSpec,
    machine: MachineProfile,
    demand: TextDemand,
    formats: Sequence[ModelFormats],
) -> list[EncoderOption]:
    """Returns an option for each format, with the largest batch that keeps the limit. Raises
    ConfigError for texts that the model does not take."""
    return [_option(spec, machine, demand, one) for one in formats]


def _option(
    spec: ModelSpec, machine: MachineProfile, demand: TextDemand, formats: ModelFormats
) -> EncoderOption:
    num_texts = max(1, BatchConfig.max_batch_tokens // demand.text_tokens)
    while True:
        found = inspect_encoder(
            spec, formats, machine, num_texts=num_texts, text_tokens=demand.text_tokens
        )
        memory = found.memory
        weight_bytes = memory.weights + memory.vectors + memory.embedding
        fits = memory.total <= MEMORY_SHARE * machine.roofs.memory_bytes
        if fits and 2 * found.predicted_s <= demand.limit_s:
            return EncoderOption(
                formats=formats,
                weight_bytes=weight_bytes,
                num_texts=num_texts,
                batch_s=found.predicted_s,
            )
        if num_texts == 1:
            return EncoderOption(formats=formats, weight_bytes=weight_bytes)
        num_texts //= 2
