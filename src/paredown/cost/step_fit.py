"""StepFit: this machine's speed with our own kernels, as coefficients fitted to a sweep.

    step = step_s + layers layer_s + tokens columns column_s + linear layers + attention
           + logits logit_s
    linear layer = r (c^4 + m^4)^(1/4)      c = tokens weights seconds_per_mac(tokens)
                                            m = bytes / (memory_efficiency bandwidth(model's bytes))
                                            r = ratio(tokens, model's bytes)
    attention = max(keys kv_columns key_s + pairs query_columns pair_s,
                    bytes / bandwidth(what the step reads))
    engine = step_s + tokens token_s + requests request_s + logits logit_s
             + (arrival_s + first tokens prompt_s where there are first tokens),
             each of them at(model's bytes)

c is the time of a layer whose weight lies in the caches, m the time to read the weight from where
the model lies. Reading and computing overlap, but not fully where both take about as long; the
fourth power makes the transition smooth. r corrects the remaining difference to the measured
models, and carries over to models of similar size. The engine is Python. The more a step of the
executor reads, the more of the engine's data leaves the caches, and the slower the engine gets.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any

from paredown.cost.model_formats import ModelFormats
from paredown.cost.roofline import Roofs
from paredown.cost.step_cost import StepLoad
from paredown.errors import ConfigError
from paredown.spec.weight import SHORT_BF16_ISAS

# Raised when coefficients change their meaning; machines with older files must be measured again.
VERSION = 5


@dataclass(frozen=True, kw_only=True)
class LinearRates:
    """The rates of one weight format. `seconds_per_mac[i]` is the time of a multiply-add with
    `num_tokens[i]` tokens. `ratios[j][i]` corrects it for a model of `model_bytes[j]`, where such
    models were measured."""

    num_tokens: tuple[int, ...]
    seconds_per_mac: tuple[float, ...]
    memory_efficiency: float
    model_bytes: tuple[float, ...] = ()
    ratios: tuple[tuple[float, ...], ...] = ()

    def seconds(self, macs: float, num_tokens: float, memory_s: float, model_bytes: float) -> float:
        """Returns the seconds of a layer with `macs` multiply-adds per token. Its bytes take
        `memory_s` at best, and its model reads `model_bytes` in a step."""
        rate = interpolate(self.num_tokens, self.seconds_per_mac, num_tokens)
        seconds = overlapped(macs * num_tokens * rate, memory_s / self.memory_efficiency)
        return seconds * self.ratio(num_tokens, model_bytes)

    def ratio(self, num_tokens: float, model_bytes: float) -> float:
        if not self.ratios:
            return 1.0
        at_size = [interpolate(self.num_tokens, one, num_tokens) for one in self.ratios]
        return interpolate(self.model_bytes, at_size, model_bytes)


@dataclass(frozen=True, kw_only=True)
class AttentionRates:
    """The rates of one format of keys and values: seconds per number of a key and value that is
    read, and per multiply-add of a query with a key and of its weight with the value."""

    key_s: float
    pair_s: float


@dataclass(frozen=True, kw_only=True)
class StepRates:
    """The rates of work outside products: per step, per layer, per number that passes between
    layers, and per logit, whose memory is new in each step."""

    step_s: float
    layer_s: float
    column_s: float
    logit_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class EngineRates:
    """The rates of the engine beside its executor: per step, per token that it passes on, per
    request in the step, and per logit that is sampled from. A step with first tokens adds a rate
    of its own, and one for each request that it takes in; that code is no longer in the caches."""

    step_s: float = 0.0
    token_s: float = 0.0
    request_s: float = 0.0
    arrival_s: float = 0.0
    prompt_s: float = 0.0
    logit_s: float = 0.0

    def seconds(self, step: StepLoad, vocab_size: int) -> float:
        return (
            self.step_s
            + step.num_tokens * self.token_s
            + step.num_requests * self.request_s
            + (self.arrival_s if step.num_first_tokens else 0.0)
            + step.num_first_tokens * self.prompt_s
            + step.num_logits * vocab_size * self.logit_s
        )


@dataclass(frozen=True, kw_only=True)
class StepFit:
    """The fitted coefficients of a machine.

    `linear` is keyed by weight format, `attention` by format of keys and values. `bandwidths`
    pairs the bytes of a buffer that is read repeatedly with bytes per second. `engine` pairs the
    bytes that a model reads in a step with the engine's rates beside it, the smallest first.
    """

    roofs: Roofs
    isa: str
    num_threads: int
    bandwidths: tuple[tuple[float, float], ...]
    linear: Mapping[str, LinearRates]
    attention: Mapping[str, AttentionRates]
    rates: StepRates
    engine: tuple[tuple[float, EngineRates], ...]

    @property
    def has_short_bf16(self) -> bool:
        return self.isa in SHORT_BF16_ISAS

    def bandwidth(self, num_bytes: float) -> float:
        """Returns the bandwidth for a model that reads `num_bytes` in a step."""
        sizes, rates = zip(*self.bandwidths, strict=True)
        return interpolate(sizes, rates, num_bytes)

    def engine_rates(self, model_bytes: float) -> EngineRates:
        """Returns the engine's rates beside a model that reads `model_bytes` in a step,
        interpolated over the logarithm of the measured sizes."""
        sizes = [size for size, _ in self.engine]
        above = min(max(bisect_right(sizes, model_bytes), 1), len(sizes) - 1)
        (low, small), (high, large) = self.engine[above - 1], self.engine[above]
        share = min(max(log(model_bytes / low) / log(high / low), 0.0), 1.0)
        return EngineRates(
            **{
                name: (1 - share) * rate + share * asdict(large)[name]
                for name, rate in asdict(small).items()
            }
        )

    def knows(self, formats: ModelFormats) -> bool:
        """Returns whether steps with such weights and pages were measured."""
        weights = {formats.linear.name, formats.output.name}
        return weights <= set(self.linear) and set(formats.kv_dtypes) <= set(self.attention)

    def linear_rates(self, name: str) -> LinearRates:
        if name not in self.linear:
            raise _not_measured("weights", name, self.linear)
        return self.linear[name]

    def attention_rates(self, kv_dtype: str) -> AttentionRates:
        if kv_dtype not in self.attention:
            raise _not_measured("keys and values", kv_dtype, self.attention)
        return self.attention[kv_dtype]

    def as_json(self) -> dict[str, Any]:
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "StepFit":
        """Reads what `as_json` wrote. Raises KeyError, TypeError or ValueError for anything
        else."""
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']}")
        return cls(
            roofs=Roofs(**document["roofs"]),
            isa=document["isa"],
            num_threads=document["num_threads"],
            bandwidths=tuple((float(size), float(rate)) for size, rate in document["bandwidths"]),
            linear={
                name: LinearRates(
                    num_tokens=tuple(one["num_tokens"]),
                    seconds_per_mac=tuple(one["seconds_per_mac"]),
                    memory_efficiency=one["memory_efficiency"],
                    model_bytes=tuple(one["model_bytes"]),
                    ratios=tuple(tuple(ratios) for ratios in one["ratios"]),
                )
                for name, one in document["linear"].items()
            },
            attention={name: AttentionRates(**one) for name, one in document["attention"].items()},
            rates=StepRates(**document["rates"]),
            engine=tuple((float(size), EngineRates(**one)) for size, one in document["engine"]),
        )


def overlapped(compute_s: float, memory_s: float) -> float:
    """Returns the time of two activities that overlap: the longer one, and somewhat more where
    they are about equal."""
    longest = max(compute_s, memory_s)
    if longest <= 0:
        return 0.0
    return float(longest * (1 + (min(compute_s, memory_s) / longest) ** 4) ** 0.25)


def interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Interpolates linearly over the logarithms of the points; outside, the nearest point
    counts."""
    if x <= xs[0]:
        return ys[0]
    if x >= xs[-1]:
        return ys[-1]
    above = bisect_right(xs, x)
    share = log(x / xs[above - 1]) / log(xs[above] / xs[above - 1])
    return exp((1 - share) * log(ys[above - 1]) + share * log(ys[above]))


def _not_measured(what: str, name: str, known: Mapping[str, object]) -> ConfigError:
    return ConfigError(
        f"no times are known for {what} of this format",
        seen=name,
        remedy=f"Measured are {', '.join(known)}; `paredown doctor --sweep` measures.",
    )
