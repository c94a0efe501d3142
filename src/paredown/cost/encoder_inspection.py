"""EncoderInspection: what the cost model says about an encoder, a batch of texts and a machine."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from paredown.cost.encoder_load import encoder_load
from paredown.cost.inspection import model_json, operation_row
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.memory import ModelMemory, model_memory
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import OperationCost, load_letters
from paredown.cost.operations import operations
from paredown.cost.roofline import Roofs, best_step_s
from paredown.errors import ConfigError
from paredown.spec.model import ModelSpec

_FLOAT_BYTES = 4
_MAX_TEXTS = 10**6


@dataclass(frozen=True, kw_only=True)
class EncoderInspection:
    """The result of `inspect_encoder`. `operations` are those of a batch, and `operation_s` their
    predicted times (None where nothing was measured). No prediction beats `best_s`."""

    spec: ModelSpec
    formats: ModelFormats
    num_texts: int
    text_tokens: int
    machine: MachineProfile
    roofs: Roofs
    operations: list[OperationCost]
    operation_s: list[float | None]
    memory: ModelMemory
    best_s: float
    predicted_s: float

    @property
    def texts_per_s(self) -> float:
        return self.num_texts / self.predicted_s

    @property
    def tokens_per_s(self) -> float:
        return self.num_texts * self.text_tokens / self.predicted_s

    def as_json(self) -> dict[str, Any]:
        return {
            "model": model_json(self.spec),
            "formats": asdict(self.formats),
            "texts": {"batch": self.num_texts, "tokens": self.text_tokens},
            "machine": asdict(self.machine.roofs) | {"basis": self.machine.basis(self.formats)},
            "operations": [
                operation_row(one, self.roofs) | {"predicted_s": seconds}
                for one, seconds in zip(self.operations, self.operation_s, strict=True)
            ],
            "memory_bytes": asdict(self.memory) | {"total": self.memory.total},
            "best_s": self.best_s,
            "predicted": {
                "seconds": self.predicted_s,
                "texts_per_s": self.texts_per_s,
                "tokens_per_s": self.tokens_per_s,
            },
        }


def inspect_encoder(
    spec: ModelSpec,
    formats: ModelFormats,
    machine: MachineProfile,
    *,
    num_texts: int,
    text_tokens: int,
) -> EncoderInspection:
    """Computes the tables of a batch of texts. Raises ConfigError for one that the model does not
    take."""
    _check(spec, num_texts, text_tokens)
    formats = machine.running(formats)
    cost = machine.step_cost(spec, formats)
    load = encoder_load(num_texts, text_tokens, spec)
    costs = [one.at(load_letters(load, spec)) for one in operations(spec, formats)]
    seconds = [cost.operation_s(one, load) for one in costs]
    memory = model_memory(
        spec, formats, batch=num_texts, context=text_tokens, step_tokens=num_texts * text_tokens
    )
    head = spec.head
    size = spec.hidden_size if head is None else head.output_size(spec.hidden_size)
    best_s = best_step_s(costs, cost.roofs, load)
    return EncoderInspection(
        spec=spec,
        formats=formats,
        num_texts=num_texts,
        text_tokens=text_tokens,
        machine=machine,
        roofs=cost.roofs,
        operations=costs,
        operation_s=seconds,
        memory=replace(memory, kv=0, outputs=_FLOAT_BYTES * num_texts * size),
        best_s=best_s,
        predicted_s=max(best_s, sum(one for one in seconds if one is not None)),
    )


def _check(spec: ModelSpec, num_texts: int, text_tokens: int) -> None:
    for name, value, most in (
        ("--batch", num_texts, _MAX_TEXTS),
        ("--prompt-tokens", text_tokens, spec.max_positions),
    ):
        if not 1 <= value <= most:
            raise ConfigError(f"{name} is out of range", seen=value, remedy=f"Use 1 to {most:,}.")
