"""The operations of a model's step, as polynomials: the only place where its cost is counted.

A multiply-add counts as 2 operations. Norms, rotary positions, the softmax, activation functions
and residuals do not count as arithmetic; their reads and writes are included in their neighbours'.
Attention is fused, as ours and FlashAttention's (arXiv 2205.14135) are: scores never reach memory.
With `fused=False` they are written and read, as in the textbook.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from paredown.cost.alike import (
    Alike,
    AttentionLayers,
    T,
    attention_layers,
    crossed_layers,
    dense_layers,
    expert_layers,
    projections,
)
from paredown.cost.model_formats import ModelFormats, Unit, kv_element_bytes, unit_of
from paredown.cost.operation import (
    CROSS_KEYS,
    CROSS_PAIRS,
    ENCODER_PAIRS,
    ENCODER_TOKENS,
    KEYS,
    LOGITS,
    PAIRS,
    TOKENS,
    Operation,
    expert_letter,
    window_letters,
)
from paredown.cost.polynomial import Polynomial
from paredown.cost.sizes import Sizes
from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec
from paredown.spec.roles import QKV_ROLES
from paredown.spec.weight import WeightSpec

_NONE = Polynomial({})
_LOGIT_BYTES = 4


def operations(
    spec: ModelSpec, formats: ModelFormats, sizes: Sizes | None = None, *, fused: bool = True
) -> list[Operation]:
    """Returns the operations in the order of a step: the encoder's where there is one, embedding,
    each layer's, logits. `sizes` are the model's own numbers unless letters are given."""
    sizes = sizes or Sizes.of(spec)
    own = _Counter(spec, formats, sizes, fused).all()
    if spec.encoder is None:
        return own
    kept = replace(formats, kv_dtype="bf16")
    letters = _Letters(ENCODER_TOKENS, ENCODER_TOKENS, ENCODER_PAIRS, ENCODER_TOKENS)
    encoder = _Counter(spec.encoder, kept, sizes, fused, letters).all()
    return [*(one.of_prompt("encoder's ") for one in encoder), *own]


@dataclass(frozen=True)
class _Letters:
    """Tokens, rows of logits, pairs and keys without a window."""

    tokens: str = TOKENS
    logits: str = LOGITS
    pairs: str = PAIRS
    keys: str = KEYS


@dataclass(frozen=True)
class _Counter:
    spec: ModelSpec
    formats: ModelFormats
    sizes: Sizes
    fused: bool
    letters: _Letters = _Letters()

    def all(self) -> list[Operation]:
        spec = self.spec
        shapes, attention = projections(spec), attention_layers(spec, self.formats)
        return [
            self._embedding(),
            *(self._projection(role, alike) for role in QKV_ROLES for alike in shapes),
            *(one for alike in attention for one in self._attention(alike)),
            *(one for alike in shapes for one in _behind(alike, [self._projection("o", alike)])),
            *self._across(),
            *(one for alike in dense_layers(spec) for one in _behind(alike, self._dense(alike))),
            *(
                one
                for number, alike in enumerate(expert_layers(spec))
                for one in _behind(alike, self._experts(number, alike))
            ),
            *([self._logits()] if spec.generates else ()),
        ]

    def _across(self) -> list[Operation]:
        """Builds cross-attention: keys and values of the encoder's tokens, once for a text, and for
        each token queries, scores, their weighted sum and its projection."""
        found = list[Operation]()
        for alike in crossed_layers(self.spec):
            tokens = {role: ENCODER_TOKENS if role in ("k", "v") else TOKENS for role in "kvqo"}
            k, v, q, o = (self._projection(role, alike, letter) for role, letter in tokens.items())
            layers = AttentionLayers(
                suffix=alike.suffix,
                count=alike.count,
                attention=alike.part,
                kv_dtype=self.formats.kv_dtypes[0],
                window_number=None,
                has_last=alike.has_last,
            )
            met = replace(self, letters=_Letters(pairs=CROSS_PAIRS, keys=CROSS_KEYS))
            found += [one.of_prompt("cross ") for one in (k, v)]
            own = (q, *met._attention(layers), o)
            found += [replace(one, name=f"cross {one.name}") for one in own]
        return found

    def _projection(
        self, role: str, alike: Alike[Attention], letter: str | None = None
    ) -> Operation:
        attention, hidden = alike.part, self.sizes.hidden
        sizes = self.sizes.attention(attention, self.spec.hidden_size)
        shapes = {
            "q": (sizes.query, hidden),
            "k": (sizes.key_value, hidden),
            "v": (sizes.key_value, hidden),
            "o": (hidden, sizes.query),
        }
        return self._product(
            role + alike.suffix,
            alike.count,
            rows=Polynomial.letter(letter or self.letters.tokens),
            out=shapes[role][0],
            columns=shapes[role][1],
            num_columns=attention.shapes(self.spec.hidden_size)[role][1],
        )

    def _dense(self, alike: Alike[Mlp]) -> list[Operation]:
        rows, size = Polynomial.letter(self.letters.tokens), self.sizes.mlp(alike.part)
        return self._mlp("", alike, alike.part, rows, size)

    def _mlp(
        self, prefix: str, alike: Alike[T], mlp: Mlp, rows: Polynomial, size: Polynomial
    ) -> list[Operation]:
        """Builds the products of a dense layer, of the shared expert, or of the routed experts."""
        hidden, hidden_size = self.sizes.hidden, self.spec.hidden_size
        shapes = dict.fromkeys(mlp.up_roles, (size, hidden, hidden_size))
        shapes["down"] = (hidden, size, mlp.size)
        return [
            self._product(
                prefix + role + alike.suffix,
                alike.count,
                rows=rows,
                out=out,
                columns=columns,
                num_columns=num_columns,
            )
            for role, (out, columns, num_columns) in shapes.items()
        ]

    def _experts(self, number: int, alike: Alike[Experts]) -> list[Operation]:
        """Builds the router, whose weights are float32, the experts of each token, and the shared
        expert."""
        experts, sizes = alike.part, self.sizes.experts(alike.part)
        floats = (self.formats.activation_bytes, self.formats.activation_bytes)
        routers, float32 = {"router": sizes.num}, WeightSpec(dtype="fp32")
        if experts.shared is not None:
            routers["shared router"] = Polynomial.number(1)
        found = [
            _product(
                name + alike.suffix,
                alike.count,
                float32,
                rows=Polynomial.letter(self.letters.tokens),
                out=out,
                columns=self.sizes.hidden,
                bytes_per_weight=self.formats.weight_bytes(float32, self.spec.hidden_size),
                activation_bytes=floats,
            )
            for name, out in routers.items()
        ]
        asked = Polynomial.letter(expert_letter(number))
        rows = Polynomial.letter(self.letters.tokens)
        each = self._mlp("experts' ", alike, experts.expert, rows * sizes.num_per_token, sizes.size)
        found += [
            replace(one, kind="experts", experts=experts, weight_bytes=one.weight_bytes * asked)
            for one in each
        ]
        if experts.shared is not None:
            found += self._mlp("shared ", alike, experts.shared, rows, sizes.shared)
        return found

    def _product(
        self,
        name: str,
        count: int,
        *,
        rows: Polynomial,
        out: Polynomial,
        columns: Polynomial,
        num_columns: int,
    ) -> Operation:
        """Builds a product with a weight in the layers' format."""
        floats = self.formats.activation_bytes
        return _product(
            name,
            count,
            self.formats.linear,
            rows=rows,
            out=out,
            columns=columns,
            bytes_per_weight=self.formats.linear_bytes(num_columns),
            activation_bytes=(floats, floats),
        )

    def _embedding(self) -> Operation:
        """Builds the lookup of a row of the table for each token, read and written."""
        values = Polynomial.letter(self.letters.tokens) * self.sizes.hidden
        return Operation(
            name="embedding",
            kind="embedding",
            count=1,
            unit="fp32",
            out=self.sizes.vocabulary,
            columns=self.sizes.hidden,
            flops=_NONE,
            weight_bytes=values * (Fraction(self.formats.embedding_bits) / 8),
            kv_bytes=_NONE,
            activation_bytes=values * self.formats.activation_bytes,
        )

    def _logits(self) -> Operation:
        return _product(
            "logits",
            1,
            self.formats.output,
            rows=Polynomial.letter(self.letters.logits),
            out=self.sizes.vocabulary,
            columns=self.sizes.hidden,
            bytes_per_weight=self.formats.weight_bytes(self.formats.output, self.spec.hidden_size),
            activation_bytes=(self.formats.activation_bytes, _LOGIT_BYTES),
        )

    def _attention(self, layers: AttentionLayers) -> list[Operation]:
        """Builds the products of queries with keys, and of their weights with values."""
        number, formats = layers.window_number, self.formats
        pairs, keys = self.letters.pairs, self.letters.keys
        if number is not None:
            pairs, keys = window_letters(number)
        sizes = self.sizes.attention(layers.attention, self.spec.hidden_size)
        flops = 2 * Polynomial.letter(pairs) * sizes.query
        element = kv_element_bytes(layers.kv_dtype, layers.attention.head_dim)
        kv_bytes = Polynomial.letter(keys) * sizes.key_value * element
        rows = Polynomial.letter(self.letters.tokens) * sizes.query * formats.activation_bytes
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
        flops=2 * weights.num_input_codes * rows * size,
        weight_bytes=size * bytes_per_weight,
        kv_bytes=_NONE,
        activation_bytes=rows * columns * read + rows * out * written,
    )


def _behind(alike: Alike[T], found: list[Operation]) -> list[Operation]:
    """Marks operations that come after the keys and values of its layer."""
    return [replace(one, num_asked_only=int(alike.has_last)) for one in found]
