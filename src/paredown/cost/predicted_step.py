"""PredictedStep: the StepCost of our engine on a calibrated machine."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from paredown.cost.alike import (
    Alike,
    AttentionLayers,
    attention_layers,
    dense_layers,
    expert_layers,
    mlp_columns,
    projections,
)
from paredown.cost.model_formats import ModelFormats, kv_element_bytes
from paredown.cost.operation import OperationCost, experts_asked
from paredown.cost.roofline import Roofs, best_time
from paredown.cost.roofline_step import RooflineStep
from paredown.cost.step_cost import StepLoad
from paredown.cost.step_fit import EngineRates, StepFit
from paredown.spec.attention import Attention
from paredown.spec.experts import Experts
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec
from paredown.spec.roles import QKV_ROLES

# The numbers per token that pass between a layer's operations: hidden state, q, k, v, attended
# heads, gated columns. The layer's work beside its products is proportional to them.
_PASSES = 2
# A number of tokens at which every expert has some.
_MANY_TOKENS = 1e9


@dataclass(frozen=True)
class _Part:
    """A linear layer that occurs `count` times in a step."""

    count: float
    num_tokens: float
    macs: int
    num_bytes: float


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """Predicts the seconds of a model's steps, with the engine's own work (`with_engine`) or for
    the executor alone. Raises ConfigError for a format that the fit does not know."""

    spec: ModelSpec
    formats: ModelFormats
    fit: StepFit
    with_engine: bool = True
    _linear_s: dict[tuple[int, int], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def step_s(self, step: StepLoad) -> float:
        """Returns the seconds of a step, never less than the roofs allow; the coefficients alone
        do not respect these."""
        seconds = max(self.fitted_s(step), self._roof.step_s(step))
        if not self.with_engine:
            return seconds
        return seconds + self._engine_rates.seconds(step, self.spec.vocab_size)

    def fitted_s(self, step: StepLoad) -> float:
        """Returns the executor's seconds by the coefficients alone."""
        rates = self.fit.rates
        key = (step.num_tokens, step.num_logits)
        linear_s = self._linear_s.get(key)
        if linear_s is None:
            linear_s = self._linear_s[key] = self.linear_s(*key)
        return (
            rates.step_s
            + self.spec.num_layers * rates.layer_s
            + self.layer_columns(step) * rates.column_s
            + linear_s
            + self.attention_s(step)
            + self.encoder_s(step)
            + step.num_logits * self._num_outputs * rates.logit_s
        )

    def encoder_s(self, step: StepLoad) -> float:
        """Returns the seconds in which an encoder reads a step's prompts, and in which keys and
        values of cross-attention are made of its vectors."""
        num_tokens = step.num_encoder_tokens
        if not num_tokens:
            return 0.0
        columns = sum(2 * one.kv_size * count for one, count in self._crossed)
        return (
            self._encoder.fitted_s(step.of_encoder)
            + columns * num_tokens * self.fit.rates.column_s
            + self._products_s(self._cross_parts(("k", "v"), num_tokens))
        )

    @cached_property
    def _encoder(self) -> "PredictedStep":
        assert self.spec.encoder is not None
        # The keys of its own texts are kept in bf16 while they are read.
        formats = replace(self.formats, kv_dtype="bf16")
        return replace(self, spec=self.spec.encoder, formats=formats)

    def _products_s(self, parts: Iterable["_Part"]) -> float:
        rates, model_bytes = self.fit.linear_rates(self.formats.linear.name), self.weight_bytes
        bandwidth = self.fit.bandwidth(model_bytes)
        return sum(
            part.count
            * rates.seconds(part.macs, part.num_tokens, part.num_bytes / bandwidth, model_bytes)
            for part in parts
        )

    @cached_property
    def _crossed(self) -> list[tuple[Attention, int]]:
        """The kinds of cross-attention, with the number of their layers."""
        counts = Counter(layer.cross for layer in self.spec.layers if layer.cross is not None)
        return list(counts.items())

    def _cross_parts(self, roles: Sequence[str], num_tokens: float) -> list["_Part"]:
        hidden, parts = self.spec.hidden_size, list[_Part]()
        for cross, count in self._crossed:
            shapes = cross.shapes(hidden)
            parts += self._parts({role: shapes[role] for role in roles}, count, num_tokens)
        return parts

    def layer_columns(self, step: StepLoad) -> int:
        """Returns how many numbers pass through operations, over all tokens and layers. In the
        last layer only tokens with a row of logits count."""
        before, last = self._columns
        return before * step.num_tokens + last * step.num_logits

    def linear_macs(self, num_tokens: int, num_logits: int) -> float:
        """Returns the multiply-adds of a step in its layers."""
        parts = self._layer_parts(num_tokens, num_logits)
        return sum(one.count * one.num_tokens * one.macs for one in parts)

    def linear_s(self, num_tokens: int, num_logits: int) -> float:
        """Returns the seconds of all products with weights in a step."""
        total = self._products_s(self._layer_parts(num_tokens, num_logits))
        if num_logits and self._num_outputs:
            output = self.fit.linear_rates(self.formats.output.name)
            macs, num_bytes = self._output_weight
            model_bytes = self.weight_bytes
            memory_s = num_bytes / self.fit.bandwidth(model_bytes)
            total += output.seconds(macs, num_logits, memory_s, model_bytes)
        return total

    def attention_s(self, step: StepLoad) -> float:
        """Returns the seconds of attention in all layers."""
        return sum(self._attention_of(step).values()) + self._cross_s(step)

    def _cross_s(self, step: StepLoad) -> float:
        """Returns the seconds of cross-attention, without its products with weights."""
        total = 0.0
        for cross, count in self._crossed:
            rates = self.fit.attention_rates(self.formats.kv_dtypes[0])
            keys, pairs = step.cross_tokens_read, step.cross_pairs
            compute_s = keys * cross.kv_size * rates.key_s + pairs * cross.query_size * rates.pair_s
            element = float(kv_element_bytes(self.formats.kv_dtypes[0], cross.head_dim))
            num_bytes = 2 * keys * cross.kv_size * element
            bandwidth = self.fit.bandwidth(self.weight_bytes + num_bytes)
            total += count * max(compute_s, num_bytes / bandwidth)
        return total

    def _attention_of(self, step: StepLoad) -> dict[str, float]:
        """Returns the seconds of attention by suffix of the layers that attend alike."""
        total_bytes, parts = self.weight_bytes, []
        for layers, element_bytes in self._attention_layers:
            keys, pairs = keys_and_pairs(step, layers)
            kv_columns = layers.attention.kv_size
            rates = self.fit.attention_rates(layers.kv_dtype)
            compute_s = keys * kv_columns * rates.key_s
            compute_s += pairs * layers.attention.query_size * rates.pair_s
            num_bytes = 2 * keys * kv_columns * element_bytes
            total_bytes += num_bytes
            parts.append((layers.suffix, compute_s, num_bytes))
        bandwidth = self.fit.bandwidth(total_bytes)
        return {
            suffix: max(compute_s, num_bytes / bandwidth) for suffix, compute_s, num_bytes in parts
        }

    def operation_s(self, cost: OperationCost, load: StepLoad) -> float | None:
        """Returns the seconds of an operation over all its layers, never less than the roofs
        allow. Attention is split evenly between scores and weighted sum. Returns None for an
        operation without a time of its own."""
        fitted_s = self._fitted_operation_s(cost, load)
        return None if fitted_s is None else max(fitted_s, best_time(cost, self.roofs).seconds)

    def _fitted_operation_s(self, cost: OperationCost, load: StepLoad) -> float | None:
        operation = cost.operation
        if operation.is_of_prompt:
            return self._prompt_operation_s(cost, load)
        if operation.kind == "attention" and operation.name.startswith("cross "):
            return self._cross_s(load) / (2 * len(self._crossed))
        if operation.kind == "attention":
            alike = self._attention_of(load)
            return alike[operation.name.removeprefix("scores").removeprefix("weighted sum")] / 2
        if operation.kind == "embedding":
            return None
        is_output = operation.name == "logits"
        format_name = (self.formats.output if is_output else self.formats.linear).name
        macs = operation.out.value() * operation.columns.value()
        num_tokens = load.num_logits if is_output else load.num_tokens
        count = operation.computed_count(load)
        memory_s = cost.weight_bytes / operation.count
        if operation.experts is not None:
            asked = experts_asked(operation.experts, num_tokens)
            count, memory_s = count * asked, memory_s / asked
            each = num_tokens * operation.experts.num_per_token / asked
        else:
            each = float(num_tokens)
        memory_s /= self.fit.bandwidth(self.weight_bytes)
        rates = self.fit.linear_rates(format_name)
        return count * rates.seconds(macs, each, memory_s, self.weight_bytes)

    def _prompt_operation_s(self, cost: OperationCost, load: StepLoad) -> float | None:
        """Returns the seconds of an operation on the tokens that the encoder reads."""
        if not load.num_encoder_tokens:
            return 0.0
        name = cost.operation.name.removeprefix("encoder's ")
        operation = replace(cost.operation, name=name, is_of_prompt=False)
        own = replace(cost, operation=operation)
        cost_of = self if name.startswith("cross ") else self._encoder
        return cost_of._fitted_operation_s(own, load.of_encoder)

    @cached_property
    def roofs(self) -> Roofs:
        """The machine's roofs for a model of this size, with the bandwidth that the products are
        predicted with, or that of memory where it was measured higher."""
        bandwidth = self.fit.bandwidth(self.weight_bytes)
        return self.fit.roofs.with_bandwidth(bandwidth)

    @cached_property
    def _roof(self) -> RooflineStep:
        return RooflineStep(spec=self.spec, formats=self._packed, roofs=self.roofs, efficiency=None)

    @cached_property
    def _packed(self) -> ModelFormats:
        """The formats as the machine's core packs them."""
        return replace(self.formats, short_bf16=self.fit.has_short_bf16)

    @cached_property
    def _columns(self) -> tuple[int, int]:
        """The numbers per token that pass through the operations of all layers but the
        last, and of the last."""
        hidden = self.spec.hidden_size
        columns = [
            _PASSES * hidden
            + 2 * (layer.attention.query_size + layer.attention.kv_size)
            + (0 if layer.cross is None else 2 * layer.cross.query_size)
            + mlp_columns(layer)
            for layer in self.spec.layers
        ]
        return sum(columns[:-1]), columns[-1]

    @cached_property
    def weight_bytes(self) -> float:
        """The bytes of weights that a step with logits reads, all experts included."""
        parts = self._layer_parts(_MANY_TOKENS, _MANY_TOKENS)
        layers = sum(part.count * part.num_bytes for part in parts)
        return layers + self._output_weight[1]

    def _layer_parts(self, num_tokens: float, num_asked: float) -> list["_Part"]:
        """Returns the linear layers of all layers. After the keys and values of the last layer
        they compute only the tokens with a row of logits."""
        attention, layers = self._projections, self._mlps
        parts: list[_Part] = []
        for alike in attention:
            shapes = alike.part.shapes(self.spec.hidden_size)
            parts += self._parts(
                {role: shapes[role] for role in QKV_ROLES}, alike.count, num_tokens
            )
        num_last = int(num_asked < num_tokens)
        if num_last and num_asked:
            for alike in attention:
                parts += self._output_parts(alike, int(alike.has_last), num_asked)
            for inner in layers:
                parts += self._mlp_parts(inner, int(inner.has_last), num_asked)
        # Of the last layer's tokens, too: they are few where it matters.
        parts += self._cross_parts(("q", "o"), num_tokens)
        for alike in attention:
            num_rest = alike.count - num_last * alike.has_last
            parts += self._output_parts(alike, num_rest, num_tokens)
        for inner in layers:
            parts += self._mlp_parts(inner, inner.count - num_last * inner.has_last, num_tokens)
        return parts

    def _output_parts(
        self, alike: Alike[Attention], count: int, num_tokens: float
    ) -> list["_Part"]:
        shapes = alike.part.shapes(self.spec.hidden_size)
        return self._parts({"o": shapes["o"]}, count, num_tokens)

    def _mlp_parts(
        self, alike: Alike[Mlp] | Alike[Experts], count: int, num_tokens: float
    ) -> list["_Part"]:
        """Returns the MLPs of `count` such layers; each expert gets its average number of
        tokens."""
        hidden, mlp = self.spec.hidden_size, alike.part
        if isinstance(mlp, Mlp):
            return self._parts(mlp.shapes(hidden), count, num_tokens)
        if not count:
            return []
        asked = experts_asked(mlp, num_tokens)
        each = num_tokens * mlp.num_per_token / asked
        parts = self._parts(mlp.expert.shapes(hidden), count * asked, each)
        if mlp.shared is not None:
            parts += self._parts(mlp.shared.shapes(hidden), count, num_tokens)
        return parts

    @cached_property
    def _projections(self) -> list[Alike[Attention]]:
        return projections(self.spec)

    @cached_property
    def _mlps(self) -> list[Alike[Mlp] | Alike[Experts]]:
        return [*dense_layers(self.spec), *expert_layers(self.spec)]

    def _parts(
        self, shapes: Mapping[str, tuple[int, int]], count: float, num_tokens: float
    ) -> list["_Part"]:
        if count == 0:
            return []
        linear, packed = self.formats.linear, self._packed
        return [
            _Part(
                count,
                num_tokens,
                out * inner,
                float(out * inner * packed.weight_bytes(linear, inner)),
            )
            for out, inner in shapes.values()
        ]

    @cached_property
    def _num_outputs(self) -> int:
        """The logits of a row; an encoder has none."""
        return self.spec.vocab_size if self.spec.generates else 0

    @cached_property
    def _output_weight(self) -> tuple[int, float]:
        columns = self.spec.hidden_size
        macs = self._num_outputs * columns
        return macs, float(macs * self._packed.weight_bytes(self.formats.output, columns))

    @cached_property
    def _engine_rates(self) -> EngineRates:
        return self.fit.engine_rates(self.weight_bytes)

    @cached_property
    def _attention_layers(self) -> list[tuple[AttentionLayers, float]]:
        """The attention layers, each kind with the bytes of one number of its keys and values."""
        return [
            (one, float(kv_element_bytes(one.kv_dtype, one.attention.head_dim)))
            for one in attention_layers(self.spec, self.formats)
        ]


def keys_and_pairs(step: StepLoad, layers: AttentionLayers) -> tuple[int, int]:
    """Returns the tokens whose keys and values are read, and the query-key pairs, over all of
    these layers."""
    last = step.last_layer if layers.has_last else step
    whole, own = (_seen(one, layers.window_number) for one in (step, last))
    count = layers.count - 1
    return count * whole[0] + own[0], count * whole[1] + own[1]


def _seen(step: StepLoad, window_number: int | None) -> tuple[int, int]:
    if window_number is None:
        return step.kv_tokens_read, step.attention_pairs
    return step.windowed_kv_tokens_read[window_number], step.windowed_pairs[window_number]
