"""PredictedStep: the StepCost of our engine on a calibrated machine."""

from dataclasses import dataclass, field
from functools import cached_property

from paredown.cost.calibration import Calibration
from paredown.cost.model_formats import ModelFormats, kv_element_bytes, weight_bytes
from paredown.cost.operation import OperationCost
from paredown.cost.operations import num_windowed_layers
from paredown.cost.step_cost import StepLoad
from paredown.spec.model import ModelSpec

# Numbers of a token that pass between operations of a layer: hidden state, q, k, v, the attended
# heads, the gated columns. What a layer's work beside its products goes with.
_PASSES = 2


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """Seconds of steps of a model, with the engine's own work (`with_engine`) or as the executor
    alone takes them. Raises ConfigError for a format the calibration does not know."""

    spec: ModelSpec
    formats: ModelFormats
    calibration: Calibration
    with_engine: bool = True
    _linear_s: dict[tuple[int, int], float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def step_s(self, step: StepLoad) -> float:
        rates, num_layers = self.calibration.rates, self.spec.num_layers
        key = (step.num_tokens, step.num_logits)
        linear_s = self._linear_s.get(key)
        if linear_s is None:
            linear_s = self._linear_s[key] = self.linear_s(*key)
        seconds = (
            rates.step_s
            + num_layers * (rates.layer_s + step.num_tokens * self.columns * rates.column_s)
            + linear_s
            + self.attention_s(step)
        )
        if not self.with_engine:
            return seconds
        engine_s = rates.engine_step_s + step.num_requests * rates.engine_request_s
        return seconds + engine_s + step.num_logits * self.spec.vocab_size * rates.logit_s

    def linear_s(self, num_tokens: int, num_logits: int) -> float:
        """All products with weights of a step."""
        linear = self.calibration.linear_rates(self.formats.linear.name)
        output = self.calibration.linear_rates(self.formats.output.name)
        model_bytes = self.weight_bytes
        bandwidth = self.calibration.bandwidth(model_bytes)
        total = 0.0
        for macs, num_bytes in self._layer_weights:
            total += linear.seconds(macs, num_tokens, num_bytes / bandwidth, model_bytes)
        total *= self.spec.num_layers
        if num_logits:
            macs, num_bytes = self._output_weight
            total += output.seconds(macs, num_logits, num_bytes / bandwidth, model_bytes)
        return total

    def attention_s(self, step: StepLoad) -> float:
        """All layers' attention."""
        spec = self.spec
        rates = self.calibration.attention_rates(self.formats.kv_dtype)
        windowed = num_windowed_layers(spec)
        full = spec.num_layers - windowed
        keys = full * step.kv_tokens_read + windowed * step.windowed_kv_tokens_read
        pairs = full * step.attention_pairs + windowed * step.windowed_pairs
        kv_columns = spec.num_kv_heads * spec.head_dim
        compute_s = (
            keys * kv_columns * rates.key_s + pairs * spec.num_heads * spec.head_dim * rates.pair_s
        )
        num_bytes = 2 * keys * kv_columns * self._kv_element_bytes
        bandwidth = self.calibration.bandwidth(self.weight_bytes + num_bytes)
        return max(compute_s, num_bytes / bandwidth)

    def operation_s(self, cost: OperationCost, load: StepLoad) -> float | None:
        """What an operation of a step takes, all its layers together; attention is halved between
        scores and weighted sum. None for what is not counted apart."""
        operation = cost.operation
        if operation.kind == "attention":
            return self.attention_s(load) / 2
        if operation.kind != "linear":
            return None
        is_output = operation.name == "logits"
        format_name = (self.formats.output if is_output else self.formats.linear).name
        macs = operation.out.value() * operation.columns.value()
        num_tokens = load.num_logits if is_output else load.num_tokens
        memory_s = cost.weight_bytes / cost.operation.count
        memory_s /= self.calibration.bandwidth(self.weight_bytes)
        rates = self.calibration.linear_rates(format_name)
        return operation.count * rates.seconds(macs, num_tokens, memory_s, self.weight_bytes)

    @cached_property
    def columns(self) -> int:
        """Numbers of a token that pass through a layer's operations."""
        spec = self.spec
        heads = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        return _PASSES * spec.hidden_size + heads + spec.intermediate_size

    @cached_property
    def weight_bytes(self) -> float:
        """What a step with logits reads of weights."""
        layer = sum(num_bytes for _, num_bytes in self._layer_weights)
        return self.spec.num_layers * layer + self._output_weight[1]

    @cached_property
    def _layer_weights(self) -> list[tuple[int, float]]:
        """Multiply-adds of a token and bytes, of each linear layer of a layer."""
        return [
            (out * columns, float(out * columns * weight_bytes(self.formats.linear, columns)))
            for out, columns in self.spec.linear_shapes().values()
        ]

    @cached_property
    def _output_weight(self) -> tuple[int, float]:
        columns = self.spec.hidden_size
        macs = self.spec.vocab_size * columns
        return macs, float(macs * weight_bytes(self.formats.output, columns))

    @cached_property
    def _kv_element_bytes(self) -> float:
        return float(kv_element_bytes(self.formats.kv_dtype, self.spec.head_dim))
