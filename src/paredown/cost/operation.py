"""Operation: one kind of work in a step, with its arithmetic and bytes as functions of the load."""

from dataclasses import dataclass, replace
from typing import Literal

from paredown.cost.model_formats import Unit
from paredown.cost.polynomial import Polynomial, Ratio
from paredown.cost.step_cost import StepLoad
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec

# The letters of a step's load: tokens, rows of logits, query-key pairs, and tokens whose keys and
# values are read, in layers without a window. The letters for windowed layers and for experts are
# numbered from the second window, or kind of experts, on (`letter_names`).
TOKENS, LOGITS, PAIRS, KEYS = "t", "r", "p", "c"
# Those of an encoder-decoder: whether the encoder reads anything (0 or 1), the tokens that it reads
# and their pairs, and pairs and keys of cross-attention.
ENCODES, ENCODER_TOKENS, ENCODER_PAIRS, CROSS_PAIRS, CROSS_KEYS = "b", "s", "ps", "px", "cx"
Kind = Literal["linear", "experts", "attention", "embedding"]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation that occurs `count` times in a step, once in each layer that has it.

    `num_asked_only` of them, one or none, come after the keys and values of the last layer. Our
    core computes those only for tokens whose logits are asked for.

    `out` and `columns` are the sizes of the second factor: a weight's rows and columns, or the
    heads' keys. `weight_bytes`, `kv_bytes` and `activation_bytes` are the least memory traffic,
    with everything read and written once. The other fields are polynomials over the letters of a
    load and the sizes of the model. `experts` are the experts that the product belongs to.
    `is_of_prompt` means that its rows are the tokens that an encoder reads.
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
    is_of_prompt: bool = False

    def of_prompt(self, prefix: str) -> "Operation":
        """Returns the operation for the tokens that an encoder reads, all of which count. Its
        weight is read in steps with such tokens; of an embedding only their rows are, anyway."""
        is_whole = self.kind != "embedding"
        weight_bytes = self.weight_bytes * Polynomial.letter(ENCODES)
        return replace(
            self,
            name=f"{prefix}{self.name}",
            weight_bytes=weight_bytes if is_whole else self.weight_bytes,
            num_asked_only=0,
            is_of_prompt=True,
        )

    def computed_count(self, load: StepLoad) -> float:
        """Returns `count`, less what our core skips in a step."""
        return self.count - self.num_asked_only * (1 - load.asked_share)

    @property
    def bytes(self) -> Polynomial:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def intensity(self) -> Ratio:
        return Ratio.of(self.flops, self.bytes)

    def at(self, load: dict[str, float]) -> "OperationCost":
        """Returns the cost in numbers, for all `count` operations together."""
        return OperationCost(
            operation=self,
            flops=self.count * self.flops.value(load),
            weight_bytes=self.count * self.weight_bytes.value(load),
            kv_bytes=self.count * self.kv_bytes.value(load),
            activation_bytes=self.count * self.activation_bytes.value(load),
        )


@dataclass(frozen=True, kw_only=True)
class OperationCost:
    """The cost of an operation in one step, over all its layers."""

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
    """Returns the letters for pairs and for tokens whose keys are read, in layers with that
    window."""
    return _numbered("pw", number), _numbered("cw", number)


def expert_letter(number: int) -> str:
    """Returns the letter for how many experts of that kind have a token."""
    return _numbered("e", number)


def letter_names(spec: ModelSpec) -> tuple[str, ...]:
    """Returns the letters of a model's load, in the order of `load_values`."""
    windows = [window_letters(number) for number in range(len(spec.windows))]
    experts = [expert_letter(number) for number in range(len(spec.expert_kinds))]
    pairs, keys = [one for one, _ in windows], [one for _, one in windows]
    across = (ENCODES, ENCODER_TOKENS, ENCODER_PAIRS, CROSS_PAIRS, CROSS_KEYS)
    encoder = across if spec.encoder is not None else ()
    return (TOKENS, LOGITS, PAIRS, KEYS, *pairs, *keys, *experts, *encoder)


def load_values(load: StepLoad, spec: ModelSpec) -> tuple[float, ...]:
    """Returns a step's load as numbers."""
    across = (
        min(load.num_encoder_tokens, 1),
        load.num_encoder_tokens,
        load.encoder_pairs,
        load.cross_pairs,
        load.cross_tokens_read,
    )
    return (
        load.num_tokens,
        load.num_logits,
        load.attention_pairs,
        load.kv_tokens_read,
        *load.windowed_pairs,
        *load.windowed_kv_tokens_read,
        *(experts_asked(experts, load.num_tokens) for experts in spec.expert_kinds),
        *(across if spec.encoder is not None else ()),
    )


def load_letters(load: StepLoad, spec: ModelSpec) -> dict[str, float]:
    """Returns a step's load by letter."""
    return dict(zip(letter_names(spec), load_values(load, spec), strict=True))


def _numbered(letter: str, number: int) -> str:
    return f"{letter}{number + 1}" if number else letter


def experts_asked(experts: Experts, num_tokens: float) -> float:
    """Returns how many of a layer's experts have a token on average, when each token is sent to k
    of E experts at random: E (1 - (1 - k/E)^T)."""
    share = experts.num_per_token / experts.num
    return float(experts.num * (1 - (1 - share) ** num_tokens))
