"""Fits a StepFit to measured steps, by least squares of relative errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import exp, log

from paredown.cost.alike import attention_layers
from paredown.cost.least_squares import least_squares
from paredown.cost.model_formats import ModelFormats
from paredown.cost.predicted_step import PredictedStep, keys_and_pairs
from paredown.cost.roofline import Roofs
from paredown.cost.step_cost import StepLoad
from paredown.cost.step_fit import (
    AttentionRates,
    EngineRates,
    LinearRates,
    StepFit,
    StepRates,
    overlapped,
)
from paredown.spec.model import ModelSpec

_ROUNDS = 4
# The candidates for the share of the bandwidth that a format's kernels reach, up to 1: the probe's
# best time is the memory's limit. The sweep's models of few bits lie in the caches and cannot tell.
# Without a limit the fit would give them any bandwidth and predict large models with it.
_EFFICIENCIES = tuple(0.5 * 1.06**i for i in range(13))
# The search for a rate starts at this share of the slowest one that would explain one model alone.
_LOWEST_SHARE = 0.02
_NUM_RATES = 80
# A step whose time is off by more than this factor was disturbed.
_MAX_RATIO = 8.0


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """A step of a model on the executor, and its measured time."""

    spec: ModelSpec
    formats: ModelFormats
    load: StepLoad
    seconds: float


@dataclass(frozen=True, kw_only=True)
class MeasuredEngineStep:
    """A step of the whole engine: the time of its executor and the rest, which includes taking in
    the requests whose prompts it computes."""

    executor: MeasuredStep
    engine_s: float


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The measured steps of a sweep.

    `small` has models so small that little but overhead is left. `linear` has models of several
    sizes at the same numbers of tokens, by weight format. `attention` pairs the same step after a
    short and a long context, by format of keys and values. `engine` has steps of the whole engine:
    a list for each size of model, the smallest first, with small and large vocabularies in each.
    """

    small: Sequence[MeasuredStep]
    linear: Mapping[str, Sequence[MeasuredStep]]
    attention: Mapping[str, Sequence[tuple[MeasuredStep, MeasuredStep]]]
    engine: Sequence[Sequence[MeasuredEngineStep]]


def fit_steps(
    sweep: Sweep,
    *,
    roofs: Roofs,
    isa: str,
    num_threads: int,
    bandwidths: Sequence[tuple[float, float]],
) -> StepFit:
    """Returns the coefficients that explain a sweep best."""
    found = StepFit(
        roofs=roofs,
        isa=isa,
        num_threads=num_threads,
        bandwidths=tuple(bandwidths),
        linear={name: _no_linear(steps) for name, steps in sweep.linear.items()},
        attention={name: _fit_attention(pairs) for name, pairs in sweep.attention.items()},
        rates=StepRates(step_s=0.0, layer_s=0.0, column_s=0.0),
        engine=(),
    )
    for _ in range(_ROUNDS):
        found = replace(found, rates=_fit_rates(sweep.small, found))
        rates = {name: _fit_linear(steps, found) for name, steps in sweep.linear.items()}
        found = replace(found, linear=rates)
    found = replace(
        found,
        linear={name: _with_ratios(steps, found, name) for name, steps in sweep.linear.items()},
    )
    engine = [_fit_engine(steps, found) for steps in sweep.engine]
    return replace(
        found,
        rates=_with_logits(sweep.engine[0], found),
        engine=tuple(sorted(engine, key=lambda one: one[0])),
    )


def _no_linear(steps: Sequence[MeasuredStep]) -> LinearRates:
    sizes = tuple(sorted({one.load.num_tokens for one in steps}))
    tiny = tuple(1e-18 for _ in sizes)
    return LinearRates(num_tokens=sizes, seconds_per_mac=tiny, memory_efficiency=1.0)


def _predicted(one: MeasuredStep, fit: StepFit) -> PredictedStep:
    return PredictedStep(spec=one.spec, formats=one.formats, fit=fit, with_engine=False)


def _fit_attention(pairs: Sequence[tuple[MeasuredStep, MeasuredStep]]) -> AttentionRates:
    """Fits the rates to differences between steps that differ only in their context."""
    rows, targets, weights = [], [], []
    for short, long in pairs:
        (alike,) = attention_layers(long.spec, long.formats)
        short_keys, short_pairs = keys_and_pairs(short.load, alike)
        keys, pairs_met = keys_and_pairs(long.load, alike)
        rows.append(
            (
                float(alike.attention.kv_size * (keys - short_keys)),
                float(alike.attention.query_size * (pairs_met - short_pairs)),
            )
        )
        targets.append(long.seconds - short.seconds)
        weights.append(1 / long.seconds)
    key_s, pair_s = least_squares(rows, targets, weights)
    return AttentionRates(key_s=key_s, pair_s=pair_s)


def _fit_rates(steps: Sequence[MeasuredStep], fit: StepFit) -> StepRates:
    rows, targets, weights = [], [], []
    for one in steps:
        model = _predicted(one, fit)
        rows.append((1.0, float(one.spec.num_layers), float(model.layer_columns(one.load))))
        known = model.linear_s(one.load.num_tokens, one.load.num_logits)
        known += model.attention_s(one.load)
        targets.append(one.seconds - known)
        weights.append(1 / one.seconds)
    step_s, layer_s, column_s = least_squares(rows, targets, weights)
    return StepRates(step_s=step_s, layer_s=layer_s, column_s=column_s)


@dataclass(frozen=True)
class _LinearSample:
    """The measured time of a step's products with weights, and the sizes of these products."""

    macs: float
    memory_s: float
    seconds: float
    step_s: float

    def error(self, rate: float, efficiency: float) -> float:
        """Returns the squared error relative to the whole step."""
        predicted = overlapped(self.macs * rate, self.memory_s / efficiency)
        return ((predicted - self.seconds) / self.step_s) ** 2


def _fit_linear(steps: Sequence[MeasuredStep], fit: StepFit) -> LinearRates:
    samples: dict[int, list[_LinearSample]] = {}
    for one in steps:
        model = _predicted(one, fit)
        num_tokens = one.load.num_tokens
        linear_s = model.linear_s(num_tokens, one.load.num_logits)
        rest = model.fitted_s(one.load) - linear_s
        memory_s = model.weight_bytes / fit.bandwidth(model.weight_bytes)
        macs = model.linear_macs(num_tokens, one.load.num_logits)
        sample = _LinearSample(macs, memory_s, max(one.seconds - rest, 0.0), one.seconds)
        samples.setdefault(num_tokens, []).append(sample)
    sizes = sorted(samples)
    best: tuple[float, float, list[float]] | None = None
    for efficiency in _EFFICIENCIES:
        fits = [_fit_rate(samples[size], efficiency) for size in sizes]
        error = sum(one for _, one in fits)
        if best is None or error < best[0]:
            best = (error, efficiency, [rate for rate, _ in fits])
    assert best is not None, "a sweep without steps"
    return LinearRates(
        num_tokens=tuple(sizes), seconds_per_mac=tuple(best[2]), memory_efficiency=best[1]
    )


def _with_ratios(steps: Sequence[MeasuredStep], fit: StepFit, name: str) -> LinearRates:
    """Returns the rates with each model's ratio of measured to predicted time of its products."""
    rates = fit.linear[name]
    found: dict[float, dict[int, float]] = {}
    for one in steps:
        model = _predicted(one, fit)
        predicted_s = model.linear_s(one.load.num_tokens, one.load.num_logits)
        measured_s = one.seconds - (model.fitted_s(one.load) - predicted_s)
        ratio = min(max(measured_s / predicted_s, 1 / _MAX_RATIO), _MAX_RATIO)
        found.setdefault(model.weight_bytes, {})[one.load.num_tokens] = ratio
    sizes = sorted(found)
    ratios = tuple(tuple(found[size][number] for number in rates.num_tokens) for size in sizes)
    return replace(rates, model_bytes=tuple(sizes), ratios=ratios)


def _fit_rate(samples: Sequence[_LinearSample], efficiency: float) -> tuple[float, float]:
    """Returns the seconds per multiply-add that explain the models best, and the remaining
    error."""
    highest = max(max(one.seconds / one.macs for one in samples), 1e-18)
    factor = _LOWEST_SHARE ** (1 / (_NUM_RATES - 1))
    rates = [highest * factor**i for i in range(_NUM_RATES)]
    errors = [(sum(one.error(rate, efficiency) for one in samples), rate) for rate in rates]
    error, rate = min(errors)
    return rate, error


def _fit_engine(steps: Sequence[MeasuredEngineStep], fit: StepFit) -> tuple[float, EngineRates]:
    """Returns the geometric mean of the models' sizes, and the fitted rates of the engine."""
    rows, targets, weights, log_bytes = [], [], [], 0.0
    for one in steps:
        spec, load = one.executor.spec, one.executor.load
        rows.append(
            (
                1.0,
                float(load.num_tokens),
                float(load.num_requests),
                float(load.num_first_tokens > 0),
                float(load.num_first_tokens),
                float(load.num_logits * spec.vocab_size),
            )
        )
        targets.append(one.engine_s)
        weights.append(1 / one.engine_s)
        log_bytes += log(_predicted(one.executor, fit).weight_bytes)
    names = [one.name for one in fields(EngineRates)]
    found = dict(zip(names, least_squares(rows, targets, weights), strict=True))
    return exp(log_bytes / len(steps)), EngineRates(**found)


def _with_logits(steps: Sequence[MeasuredEngineStep], fit: StepFit) -> StepRates:
    """Fits the executor's time per row of logits, from steps of models in which hardly anything
    else happens."""
    rows, targets, weights = [], [], []
    for one in (step.executor for step in steps):
        rows.append((float(one.load.num_logits * one.spec.vocab_size),))
        targets.append(one.seconds - _predicted(one, fit).fitted_s(one.load))
        weights.append(1 / one.seconds)
    (logit_s,) = least_squares(rows, targets, weights)
    return replace(fit.rates, logit_s=logit_s)
