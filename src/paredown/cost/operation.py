"""Operation: one kind of work of a step, its arithmetic and its bytes over the load of the step."""

from dataclasses import dataclass
from typing import Literal

from paredown.cost.model_formats import Unit
from paredown.cost.polynomial import Polynomial, Ratio
from paredown.cost.step_cost import StepLoad
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec

# The letters of a step's load: tokens, rows of logits, query-key pairs and tokens whose keys and
# values are read in layers that see everything. Those of windowed layers and of experts that are
# asked are numbered from the second window, or kind of experts, on (`letter_names`).
TOKENS, LOGITS, PAIRS, KEYS = "t", "r", "p", "c"
Kind = Literal["linear", "experts", "attention", "embedding"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """`count` times in a step (once in each layer that has it), each time with the same figures.

    `num_asked_only` of them, one or none, are behind the keys and values of the last layer: our
    core computes them for the tokens alone whose logits are asked for.

    `out` and `columns` are the sizes of what it multiplies with: a weight's rows and columns, or
    the heads' keys. `weight_bytes`, `kv_bytes` and `activation_bytes` are what goes to and from
    memory at least, everything read and written once; the other fields are polynomials over the
    letters of a load and the sizes of the model. `experts` are those whose product it is.
    """

    name: str
    kind: Kind
    count: int
    unit: Unit
    out: Polynomial
    columns: Polynomial
    flops: Polynomial
    weight_bytes: Polynomial
    kv_bytes: Polynomial
    activation_bytes: Polynomial
    num_asked_only: int = 0
    experts: Experts | None = None

    def computed_count(self, load: StepLoad) -> float:
        """`count`, less what our core leaves out of a step."""
        return self.count - self.num_asked_only * (1 - load.asked_share)

    @property
    def bytes(self) -> Polynomial:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def intensity(self) -> Ratio:
        return Ratio.of(self.flops, self.bytes)

    def at(self, load: dict[str, float]) -> "OperationCost":
        """In numbers, for all `count` times together."""
        return OperationCost(
            operation=self,
            flops=self.count * self.flops.value(load),
            weight_bytes=self.count * self.weight_bytes.value(load),
            kv_bytes=self.count * self.kv_bytes.value(load),
            activation_bytes=self.count * self.activation_bytes.value(load),
        )


@dataclass(frozen=True, kw_only=True)
class OperationCost:
    """An operation of one step, all its layers together."""

    operation: Operation
    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes if self.bytes else 0.0


def window_letters(number: int) -> tuple[str, str]:
    """Pairs, and tokens whose keys are read, of layers with that window of the model."""
    return _numbered("pw", number), _numbered("cw", number)


def expert_letter(number: int) -> str:
    """How many experts of that kind have a token."""
    return _numbered("e", number)


def letter_names(spec: ModelSpec) -> tuple[str, ...]:
    """The letters of a load of a model, in the order of `load_values`."""
    windows = [window_letters(number) for number in range(len(spec.windows))]
    experts = [expert_letter(number) for number in range(len(spec.expert_kinds))]
    pairs, keys = [one for one, _ in windows], [one for _, one in windows]
    return (TOKENS, LOGITS, PAIRS, KEYS, *pairs, *keys, *experts)


def load_values(load: StepLoad, spec: ModelSpec) -> tuple[float, ...]:
    """A step's load in numbers."""
    return (
        load.num_tokens,
        load.num_logits,
        load.attention_pairs,
        load.kv_tokens_read,
        *load.windowed_pairs,
        *load.windowed_kv_tokens_read,
        *(experts_asked(experts, load.num_tokens) for experts in spec.expert_kinds),
    )


def load_letters(load: StepLoad, spec: ModelSpec) -> dict[str, float]:
    """A step's load by letter."""
    return dict(zip(letter_names(spec), load_values(load, spec), strict=True))


def _numbered(letter: str, number: int) -> str:
    return f"{letter}{number + 1}" if number else letter


def experts_asked(experts: Experts, num_tokens: float) -> float:
    """How many of a layer's experts have a token, when each token asks k different ones of E, all
    alike: E (1 - (1 - k/E)^T), the mean."""
    share = experts.num_per_token / experts.num
    return float(experts.num * (1 - (1 - share) ** num_tokens))
