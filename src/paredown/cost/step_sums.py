"""StepSums: the work of many steps together, and what the roofs of a machine ask for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import experts_asked, letter_names
from paredown.cost.operations import operations
from paredown.cost.roofline import Roofs
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class StepSums:
    """Sums over steps of what StepLoad has of one. `steps_by_tokens` says how many steps had so
    many tokens; `seconds` is the time that the model took. Encoders are not counted."""

    seconds: float = 0.0
    steps_by_tokens: Mapping[int, int] = field(default_factory=dict)
    num_logits: int = 0
    attention_pairs: int = 0
    kv_tokens_read: int = 0
    windowed_pairs: tuple[int, ...] = ()
    windowed_kv_tokens_read: tuple[int, ...] = ()

    @property
    def num_steps(self) -> int:
        return sum(self.steps_by_tokens.values())

    @property
    def num_tokens(self) -> int:
        return sum(tokens * steps for tokens, steps in self.steps_by_tokens.items())

    def since(self, before: "StepSums") -> "StepSums":
        """Returns the sums of the steps after those of `before`."""
        return StepSums(
            seconds=self.seconds - before.seconds,
            steps_by_tokens={
                tokens: steps - before.steps_by_tokens.get(tokens, 0)
                for tokens, steps in self.steps_by_tokens.items()
            },
            num_logits=self.num_logits - before.num_logits,
            attention_pairs=self.attention_pairs - before.attention_pairs,
            kv_tokens_read=self.kv_tokens_read - before.kv_tokens_read,
            windowed_pairs=_minus(self.windowed_pairs, before.windowed_pairs),
            windowed_kv_tokens_read=_minus(
                self.windowed_kv_tokens_read, before.windowed_kv_tokens_read
            ),
        )

    def letters(self, spec: ModelSpec) -> tuple[float, ...]:
        """Returns the sums in the order of `letter_names`, with the number of steps before
        them."""
        experts = (
            sum(
                steps * experts_asked(kind, tokens)
                for tokens, steps in self.steps_by_tokens.items()
            )
            for kind in spec.expert_kinds
        )
        return (
            self.num_steps,
            self.num_tokens,
            self.num_logits,
            self.attention_pairs,
            self.kv_tokens_read,
            *self.windowed_pairs,
            *self.windowed_kv_tokens_read,
            *experts,
        )


@dataclass(frozen=True, kw_only=True)
class Utilization:
    """The shares of a machine's memory bandwidth and of its arithmetic that steps used. A share
    counts the least traffic and the arithmetic that the model needs, not what was done."""

    memory: float
    arithmetic: float


@dataclass(frozen=True, kw_only=True)
class RoofTimes:
    """The seconds that the roofs ask for, for each unit of a letter of StepSums.
    `unasked_arithmetic_s` is of what our core skips for tokens without a row of logits."""

    spec: ModelSpec
    memory_s: tuple[float, ...]
    arithmetic_s: tuple[float, ...]
    unasked_arithmetic_s: tuple[float, ...]

    @classmethod
    def of(cls, spec: ModelSpec, formats: ModelFormats, roofs: Roofs) -> "RoofTimes":
        """Returns the times of a model without an encoder."""
        assert spec.encoder is None
        names = letter_names(spec)
        memory, arithmetic, unasked = ([0.0] * (len(names) + 1) for _ in range(3))
        for one in operations(spec, formats):
            peak = roofs.peak(one.unit)
            for i, num_bytes in enumerate(one.bytes.coefficients(names)):
                memory[i] += one.count * num_bytes / roofs.bandwidth_bytes_per_s
            for i, flops in enumerate(one.flops.coefficients(names)):
                arithmetic[i] += one.count * flops / peak
                unasked[i] += one.num_asked_only * flops / peak
        return cls(
            spec=spec,
            memory_s=tuple(memory),
            arithmetic_s=tuple(arithmetic),
            unasked_arithmetic_s=tuple(unasked),
        )

    def utilization(self, sums: StepSums) -> Utilization:
        """Returns the shares during these steps, which must have taken some time."""
        values = sums.letters(self.spec)
        unasked_share = 1 - sums.num_logits / sums.num_tokens
        arithmetic_s = _dot(self.arithmetic_s, values)
        arithmetic_s -= unasked_share * _dot(self.unasked_arithmetic_s, values)
        return Utilization(
            memory=_dot(self.memory_s, values) / sums.seconds,
            arithmetic=arithmetic_s / sums.seconds,
        )


def _minus(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(left, right or (0,) * len(left), strict=True))


def _dot(left: tuple[float, ...], right: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
