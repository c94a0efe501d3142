"""The operations of a step of a model, as polynomials: the one place where its cost is counted.

Products count 2 for each multiply-add. What is not a product of matrices (norms, rotary positions,
the softmax, the activation function, residuals) is not counted as arithmetic, and its reading and
writing goes with its neighbours'. Attention is fused, as ours and FlashAttention's (arXiv
2205.14135) are: scores never reach memory. The textbook's, with `fused=False`, writes and reads
them.
"""

from dataclasses import dataclass
from fractions import Fraction

from paredown.cost.model_formats import (
    ModelFormats,
    Unit,
    kv_element_bytes,
    unit_of,
    weight_bytes,
)
from paredown.cost.operation import (
    KEYS,
    LOGITS,
    PAIRS,
    TOKENS,
    WINDOW_KEYS,
    WINDOW_PAIRS,
    Kind,
    Operation,
)
from paredown.cost.polynomial import Polynomial
from paredown.cost.sizes import Sizes
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

_NONE = Polynomial({})
_LOGIT_BYTES = 4


def operations(
    spec: ModelSpec, formats: ModelFormats, sizes: Sizes | None = None, *, fused: bool = True
) -> list[Operation]:
    """In the order of a step: embedding, each layer's, logits. `sizes` are the model's own numbers
    unless letters are given."""
    return _Counter(spec, formats, sizes or Sizes.of(spec), fused).all()


def num_windowed_layers(spec: ModelSpec) -> int:
    """Layers that attend through the sliding window."""
    return 0 if spec.sliding_window is None else spec.num_layers


@dataclass(frozen=True)
class _Counter:
    spec: ModelSpec
    formats: ModelFormats
    sizes: Sizes
    fused: bool

    def all(self) -> list[Operation]:
        spec, sizes, layers = self.spec, self.sizes, self.spec.num_layers
        windowed = num_windowed_layers(spec)
        return [
            self._embedding(),
            self._linear("q", layers, sizes.query, sizes.hidden),
            self._linear("k", layers, sizes.key_value, sizes.hidden),
            self._linear("v", layers, sizes.key_value, sizes.hidden),
            *self._attention("", layers - windowed, PAIRS, KEYS),
            *self._attention(", window", windowed, WINDOW_PAIRS, WINDOW_KEYS),
            self._linear("o", layers, sizes.hidden, sizes.query),
            *(
                self._linear(role, layers, sizes.intermediate, sizes.hidden)
                for role in (("gate", "up") if spec.gated else ("up",))
            ),
            self._linear("down", layers, sizes.hidden, sizes.intermediate),
            self._logits(),
        ]

    def _embedding(self) -> Operation:
        """A row of the table for each token, read and written."""
        values = Polynomial.letter(TOKENS) * self.sizes.hidden
        return Operation(
            name="embedding",
            kind="embedding",
            count=1,
            unit="fp32",
            out=self.sizes.vocabulary,
            columns=self.sizes.hidden,
            flops=_NONE,
            weight_bytes=values * Fraction(self.formats.embedding_bits, 8),
            kv_bytes=_NONE,
            activation_bytes=values * self.formats.activation_bytes,
        )

    def _linear(self, role: str, count: int, out: Polynomial, columns: Polynomial) -> Operation:
        num_columns = self.spec.linear_shapes()[role][1]
        return _product(
            role,
            count,
            self.formats.linear,
            rows=Polynomial.letter(TOKENS),
            out=out,
            columns=columns,
            num_columns=num_columns,
            activation_bytes=(self.formats.activation_bytes, self.formats.activation_bytes),
        )

    def _logits(self) -> Operation:
        return _product(
            "logits",
            1,
            self.formats.output,
            rows=Polynomial.letter(LOGITS),
            out=self.sizes.vocabulary,
            columns=self.sizes.hidden,
            num_columns=self.spec.hidden_size,
            activation_bytes=(self.formats.activation_bytes, _LOGIT_BYTES),
        )

    def _attention(self, suffix: str, count: int, pairs: str, keys: str) -> list[Operation]:
        """Scores of queries with keys, and values weighted by them."""
        if count == 0:
            return []
        formats, sizes = self.formats, self.sizes
        flops = 2 * Polynomial.letter(pairs) * sizes.query
        element = kv_element_bytes(formats.kv_dtype, self.spec.head_dim)
        kv_bytes = Polynomial.letter(keys) * sizes.key_value * element
        rows = Polynomial.letter(TOKENS) * sizes.query * formats.activation_bytes
        scores = Polynomial.letter(pairs) * sizes.heads * formats.activation_bytes
        unit: Unit = "fp32" if formats.kv_dtype == "fp32" else "bf16"
        return [
            Operation(
                name=name + suffix,
                kind="attention",
                count=count,
                unit=unit,
                out=Polynomial.letter(keys),
                columns=sizes.query,
                flops=flops,
                weight_bytes=_NONE,
                kv_bytes=kv_bytes,
                activation_bytes=rows if self.fused else rows + scores,
            )
            for name in ("scores", "weighted sum")
        ]


def _product(  # noqa: PLR0913 - a matrix product has so many sizes
    name: str,
    count: int,
    weights: WeightSpec,
    *,
    rows: Polynomial,
    out: Polynomial,
    columns: Polynomial,
    num_columns: int,
    activation_bytes: tuple[int, int],
    experts: Polynomial | None = None,
) -> Operation:
    kind: Kind = "linear"
    read, written = activation_bytes
    size = out * columns
    return Operation(
        name=name,
        kind=kind,
        count=count,
        unit=unit_of(weights),
        out=out,
        columns=columns,
        flops=2 * rows * size,
        weight_bytes=(experts or Polynomial.number(1)) * size * weight_bytes(weights, num_columns),
        kv_bytes=_NONE,
        activation_bytes=rows * columns * read + rows * out * written,
    )
