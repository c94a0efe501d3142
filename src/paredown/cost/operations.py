"""The operations of a step of a model, as polynomials: the one place where its cost is counted.

Products count 2 for each multiply-add. What is not a product of matrices (norms, rotary positions,
the softmax, the activation function, residuals) is not counted as arithmetic, and its reading and
writing goes with its neighbours'. Attention is fused, as ours and FlashAttention's (arXiv
2205.14135) are: scores never reach memory. The textbook's, with `fused=False`, writes and reads
them.
"""

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction

from paredown.cost.model_formats import (
    ModelFormats,
    Unit,
    kv_element_bytes,
    unit_of,
)
from paredown.cost.operation import (
    EXPERTS,
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
from paredown.spec.kv import KVDType, KVSpec
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


def num_expert_layers(spec: ModelSpec) -> int:
    """Layers that have experts in the place of their MLP."""
    return sum(spec.has_experts(layer) for layer in range(spec.num_layers))


@dataclass(frozen=True, kw_only=True)
class AttentionLayers:
    """Layers that attend alike: as many of them, the format of their keys and values, whether they
    have the sliding window, and whether the last layer is one of them."""

    suffix: str
    count: int
    kv_dtype: KVDType
    is_windowed: bool
    has_last: bool


def attention_layers(spec: ModelSpec, formats: ModelFormats) -> list[AttentionLayers]:
    """Raises ConfigError where each layer has a format and there are not as many."""
    dtypes = KVSpec(num_pages=1, dtype=formats.kv_dtype).layer_dtypes(spec.num_layers)
    kinds = [(spec.layer_window(layer) is not None, dtype) for layer, dtype in enumerate(dtypes)]
    return [
        AttentionLayers(
            suffix=(", window" if is_windowed else "")
            + (f", {dtype}" if len(set(dtypes)) > 1 else ""),
            count=count,
            kv_dtype=dtype,
            is_windowed=is_windowed,
            has_last=(is_windowed, dtype) == kinds[-1],
        )
        for (is_windowed, dtype), count in sorted(Counter(kinds).items())
    ]


@dataclass(frozen=True)
class _Counter:
    spec: ModelSpec
    formats: ModelFormats
    sizes: Sizes
    fused: bool

    def all(self) -> list[Operation]:
        spec, sizes, layers = self.spec, self.sizes, self.spec.num_layers
        attention = attention_layers(spec, self.formats)
        return [
            self._embedding(),
            self._linear("q", layers, sizes.query, sizes.hidden),
            self._linear("k", layers, sizes.key_value, sizes.hidden),
            self._linear("v", layers, sizes.key_value, sizes.hidden),
            *(one for alike in attention for one in self._attention(alike)),
            replace(self._linear("o", layers, sizes.hidden, sizes.query), num_asked_only=1),
            *self._behind_keys(
                self._mlp("", "linear", layers - num_expert_layers(spec), sizes.intermediate),
                has_last=not spec.has_experts(layers - 1),
            ),
            *self._behind_keys(self._experts(), has_last=spec.has_experts(layers - 1)),
            self._logits(),
        ]

    def _behind_keys(self, found: list[Operation], *, has_last: bool) -> list[Operation]:
        return [replace(one, num_asked_only=int(has_last)) for one in found]

    def _mlp(self, prefix: str, kind: Kind, count: int, size: Polynomial) -> list[Operation]:
        """Of a dense layer, of the shared expert, or of the experts that are asked."""
        if count == 0:
            return []
        spec, hidden = self.spec, self.sizes.hidden
        num_columns = spec.intermediate_size
        if spec.experts is not None and prefix:
            num_columns = spec.experts.intermediate_size
            if kind == "linear":
                num_columns = spec.experts.shared_intermediate_size or 0
        up_roles = ("gate", "up") if spec.gated else ("up",)
        shapes = dict.fromkeys(up_roles, (size, hidden, spec.hidden_size))
        shapes["down"] = (hidden, size, num_columns)
        return [
            self._product(prefix + role, kind, count, out, columns, inner)
            for role, (out, columns, inner) in shapes.items()
        ]

    def _experts(self) -> list[Operation]:
        """The router, whose weights are float32, what each token's experts do, and the expert of
        all tokens."""
        spec, sizes, count = self.spec, self.sizes, num_expert_layers(self.spec)
        if spec.experts is None or count == 0:
            return []
        floats = (self.formats.activation_bytes, self.formats.activation_bytes)
        routers, float32 = {"router": sizes.experts}, WeightSpec(dtype="fp32")
        if spec.experts.shared_intermediate_size is not None:
            routers["shared router"] = Polynomial.number(1)
        found = [
            _product(
                name,
                count,
                float32,
                rows=Polynomial.letter(TOKENS),
                out=out,
                columns=sizes.hidden,
                bytes_per_weight=self.formats.weight_bytes(float32, spec.hidden_size),
                activation_bytes=floats,
            )
            for name, out in routers.items()
        ]
        found += self._mlp("experts' ", "experts", count, sizes.expert_intermediate)
        if spec.experts.shared_intermediate_size is not None:
            found += self._mlp("shared ", "linear", count, sizes.shared_intermediate)
        return found

    def _product(
        self,
        name: str,
        kind: Kind,
        count: int,
        out: Polynomial,
        columns: Polynomial,
        num_columns: int,
    ) -> Operation:
        """With a weight of the layer, or with those of all experts that have a token."""
        of_experts = kind == "experts"
        rows, floats = Polynomial.letter(TOKENS), self.formats.activation_bytes
        found = _product(
            name,
            count,
            self.formats.linear,
            rows=rows * self.sizes.experts_per_token if of_experts else rows,
            out=out,
            columns=columns,
            bytes_per_weight=self.formats.weight_bytes(self.formats.linear, num_columns),
            activation_bytes=(floats, floats),
        )
        if not of_experts:
            return found
        asked = Polynomial.letter(EXPERTS)
        return replace(found, kind=kind, weight_bytes=found.weight_bytes * asked)

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
        num_columns = self.spec.attention_shapes()[role][1]
        return self._product(role, "linear", count, out, columns, num_columns)

    def _logits(self) -> Operation:
        return _product(
            "logits",
            1,
            self.formats.output,
            rows=Polynomial.letter(LOGITS),
            out=self.sizes.vocabulary,
            columns=self.sizes.hidden,
            bytes_per_weight=self.formats.weight_bytes(self.formats.output, self.spec.hidden_size),
            activation_bytes=(self.formats.activation_bytes, _LOGIT_BYTES),
        )

    def _attention(self, layers: AttentionLayers) -> list[Operation]:
        """Scores of queries with keys, and values weighted by them."""
        pairs, keys = (WINDOW_PAIRS, WINDOW_KEYS) if layers.is_windowed else (PAIRS, KEYS)
        formats, sizes = self.formats, self.sizes
        flops = 2 * Polynomial.letter(pairs) * sizes.query
        element = kv_element_bytes(layers.kv_dtype, self.spec.head_dim)
        kv_bytes = Polynomial.letter(keys) * sizes.key_value * element
        rows = Polynomial.letter(TOKENS) * sizes.query * formats.activation_bytes
        scores = Polynomial.letter(pairs) * sizes.heads * formats.activation_bytes
        unit: Unit = "fp32" if layers.kv_dtype == "fp32" else "bf16"
        return [
            Operation(
                name=name + layers.suffix,
                kind="attention",
                count=layers.count,
                unit=unit,
                out=Polynomial.letter(keys),
                columns=sizes.query,
                flops=flops,
                weight_bytes=_NONE,
                kv_bytes=kv_bytes,
                activation_bytes=rows if self.fused else rows + scores,
                num_asked_only=int(layers.has_last),
            )
            for name in ("scores", "weighted sum")
        ]


def _product(
    name: str,
    count: int,
    weights: WeightSpec,
    *,
    rows: Polynomial,
    out: Polynomial,
    columns: Polynomial,
    bytes_per_weight: Fraction,
    activation_bytes: tuple[int, int],
) -> Operation:
    read, written = activation_bytes
    size = out * columns
    return Operation(
        name=name,
        kind="linear",
        count=count,
        unit=unit_of(weights, read),
        out=out,
        columns=columns,
        flops=2 * rows * size,
        weight_bytes=size * bytes_per_weight,
        kv_bytes=_NONE,
        activation_bytes=rows * columns * read + rows * out * written,
    )
