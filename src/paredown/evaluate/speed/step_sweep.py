"""Sweeps this machine's kernels by timing steps of small models of several sizes.

The speed of a shared machine changes from second to second, so all swept models take turns, round
after round. Disturbances only add time, so the lower quartile of the rounds counts. The models are
random; the fit (cost/fit_steps.py) is then used for real ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from paredown.cost.fit_steps import MeasuredEngineStep, MeasuredStep, Sweep, fit_steps
from paredown.cost.model_formats import ModelFormats
from paredown.cost.roofline import Roofs
from paredown.cost.step_fit import StepFit
from paredown.evaluate.speed.engine_steps import measure_engine_steps, num_engine_pages
from paredown.evaluate.speed.random_model import random_model
from paredown.evaluate.speed.swept_model import SweptLoad, SweptModel
from paredown.formats.table import COSTED_FORMATS
from paredown.kernels.probe import measure_bandwidth
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.progress import OnCount
from paredown.spec.attention import Attention
from paredown.spec.kv import KV_DTYPES, KVDType, KVSpec
from paredown.spec.layer import LayerSpec
from paredown.spec.machine import Machine
from paredown.spec.mlp import Mlp
from paredown.spec.model import Embedding, ModelSpec, Output
from paredown.spec.norm import Norm, Norms
from paredown.spec.rotary import Rotary
from paredown.units import MEBI

BANDWIDTH_BYTES = tuple(size * MEBI for size in (2, 8, 32, 64, 128, 256, 512, 1024))
_MAX_CONTEXT = 4096


def _model(hidden: int, intermediate: int, layers: int, heads: tuple[int, int, int]) -> ModelSpec:
    """Returns a model; `heads` holds the number of heads, of key-value heads, and the columns per
    head."""
    num_heads, num_kv_heads, head_dim = heads
    norm = Norm(kind="rms", eps=1e-5)
    layer = LayerSpec(
        attention=Attention(
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            rotary=Rotary(theta=10000.0),
        ),
        mlp=Mlp(size=intermediate, is_gated=True, activation="silu"),
        norms=Norms(attention=norm, mlp=norm),
    )
    return ModelSpec(
        family="llama",
        vocab_size=2048,
        hidden_size=hidden,
        max_positions=_MAX_CONTEXT + 512,
        embedding=Embedding(),
        layers=(layer,) * layers,
        final_norm=norm,
        output=Output(),
    )


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """The models and loads to measure. `small` models differ only in their number of layers, those
    in `models` in how much of a cache they fill. Attention is measured on
    `models[:num_attention_models]`; the engine's own time on `small[0]` and
    `models[:num_engine_models]`."""

    formats: tuple[str, ...] = ("bf16", "int8", "w8a8", "int4-g32", "int4-g128", "w4a8-g32-qoq")
    kv_dtypes: tuple[KVDType, ...] = KV_DTYPES
    num_tokens: tuple[int, ...] = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
    small: tuple[ModelSpec, ...] = (
        _model(64, 128, 1, (2, 1, 32)),
        _model(64, 128, 16, (2, 1, 32)),
        _model(256, 768, 16, (4, 2, 64)),
    )
    models: tuple[ModelSpec, ...] = (
        _model(384, 1024, 4, (6, 6, 64)),
        _model(1024, 2816, 4, (16, 4, 64)),
        _model(2048, 8192, 3, (32, 8, 64)),
    )
    num_attention_models: int = 2
    num_engine_models: int = 2
    contexts: tuple[int, ...] = (256, 1024, _MAX_CONTEXT)
    num_sequences: tuple[int, ...] = (1, 4, 16)
    chunk_tokens: tuple[int, ...] = (64, 512)
    vocab_sizes: tuple[int, ...] = (8192, 65536)
    num_rounds: int = 8
    bandwidth_bytes: tuple[int, ...] = BANDWIDTH_BYTES


def sweep_machine(
    machine: Machine, config: SweepConfig | None = None, on_progress: OnCount | None = None
) -> StepFit:
    """Measures and fits, which takes a few minutes on two cores. Raises ConfigError for an unknown
    format."""
    config = config or SweepConfig()
    num_rounds, num_done = config.num_rounds + 1, 0
    total = 2 * len(config.bandwidth_bytes) + (1 + len(config.kv_dtypes)) * num_rounds
    total += len(config.vocab_sizes) * (1 + config.num_engine_models)

    def tell() -> None:
        nonlocal num_done
        num_done += 1
        if on_progress is not None:
            on_progress(num_done, total)

    sweep = StepSweep(machine, config, tell)
    for part in sweep.parts:
        for _ in range(num_rounds):
            part.run_round()
            tell()
        part.close()
    return sweep.fit()


class SweepPart:
    """Models that take turns. They are made for the warm-up round and freed by `close`."""

    def __init__(self, make: Callable[[], list[SweptModel]]) -> None:
        self._make = make
        self._models: list[SweptModel] = []
        self._steps: list[dict[SweptLoad, MeasuredStep]] = []

    @property
    def steps(self) -> Sequence[dict[SweptLoad, MeasuredStep]]:
        """Returns the steps of each model that were measured before `close`."""
        assert self._steps, "not closed yet"
        return self._steps

    def run_round(self) -> None:
        self._models = self._models or self._make()
        for model in self._models:
            model.run_round()

    def close(self) -> None:
        if self._models:
            self._steps = [model.measured() for model in self._models]
            self._models = []


class StepSweep:
    """`parts` hold the models whose weights are swept, and those of each KV format. Run each part
    for two rounds or more, in sequence (which takes less memory) or together. `tell` is called
    after each measurement outside the rounds. Raises ConfigError for an unknown format."""

    def __init__(
        self, machine: Machine, config: SweepConfig, tell: Callable[[], None] = lambda: None
    ) -> None:
        self._config = config
        self._machine = machine
        self._tell = tell
        self._bandwidths = dict.fromkeys(config.bandwidth_bytes, 0.0)
        self._measure_bandwidths()
        self._weights = SweepPart(self._weight_models)
        self._attention = {
            dtype: SweepPart(partial(self._attention_models, dtype)) for dtype in config.kv_dtypes
        }
        self.parts = (self._weights, *self._attention.values())

    def fit(self) -> StepFit:
        """Closes the parts, measures the engine and the bandwidths once more, and fits."""
        for part in self.parts:
            part.close()
        self._measure_bandwidths()
        config, threads = self._config, self._machine.num_threads
        steps = [list(found.values()) for found in self._weights.steps]
        num_small, each = len(config.small), len(config.models)
        firsts = range(num_small, len(steps), each)
        linear = {
            name: [step for found in steps[first : first + each] for step in found]
            for name, first in zip(config.formats, firsts, strict=True)
        }
        attention: dict[str, list[tuple[MeasuredStep, MeasuredStep]]] = {
            dtype: self._pairs(part) for dtype, part in self._attention.items()
        }
        beside = (config.small[0], *config.models[: config.num_engine_models])
        sweep = Sweep(
            small=[step for found in steps[:num_small] for step in found],
            linear=linear,
            attention=attention,
            engine=[self._engine_steps(spec) for spec in beside],
        )
        return fit_steps(
            sweep,
            roofs=Roofs.of(self._machine),
            isa=self._machine.isa,
            num_threads=threads,
            bandwidths=never_rising(self._bandwidths),
        )

    def _measure_bandwidths(self) -> None:
        """Keeps the best bandwidth of all measurements."""
        for size, before in self._bandwidths.items():
            found = measure_bandwidth(self._machine.num_threads, size)
            self._bandwidths[size] = max(before, found)
            self._tell()

    def _weight_models(self) -> list[SweptModel]:
        """Returns the small models, then those of each format, with one chunk from position 0 for
        each number of tokens."""
        config = self._config
        loads = [SweptLoad(1, 0, num_tokens) for num_tokens in config.num_tokens]
        models = [(spec, "bf16") for spec in config.small]
        models += [(spec, name) for name in config.formats for spec in config.models]
        return [
            self._swept(spec, ModelFormats(linear=COSTED_FORMATS[name]), loads)
            for spec, name in models
        ]

    def _contexts(self) -> list[tuple[SweptLoad, SweptLoad]]:
        """Returns pairs of loads with the same tokens, without and with a context."""
        config = self._config
        return [
            (SweptLoad(number, 0, 1), SweptLoad(number, context - 1, 1))
            for number in config.num_sequences
            for context in config.contexts
        ] + [
            (SweptLoad(1, 0, num_tokens), SweptLoad(1, context - num_tokens, num_tokens))
            for num_tokens in config.chunk_tokens
            for context in config.contexts
            if context > num_tokens
        ]

    def _attention_models(self, dtype: KVDType) -> list[SweptModel]:
        config = self._config
        loads = list(dict.fromkeys(load for pair in self._contexts() for load in pair))
        formats = ModelFormats(linear=COSTED_FORMATS[config.formats[0]], kv_dtype=dtype)
        models = config.models[: config.num_attention_models]
        return [self._swept(spec, formats, loads) for spec in models]

    def _pairs(self, part: SweepPart) -> list[tuple[MeasuredStep, MeasuredStep]]:
        return [
            (found[short], found[long]) for found in part.steps for short, long in self._contexts()
        ]

    def _swept(
        self, spec: ModelSpec, formats: ModelFormats, loads: Sequence[SweptLoad]
    ) -> SweptModel:
        alike = replace(formats, output=formats.linear)
        return SweptModel(spec, alike, loads, self._machine.num_threads)

    def _engine_steps(self, spec: ModelSpec) -> list[MeasuredEngineStep]:
        tokenizer, weights = Tokenizer.open(resolve_model(None)), COSTED_FORMATS["bf16"]
        formats, found = ModelFormats(linear=weights, output=weights), []
        kv, threads = KVSpec(num_pages=num_engine_pages()), self._machine.num_threads
        for vocab_size in self._config.vocab_sizes:
            executor = random_model(replace(spec, vocab_size=vocab_size), weights, kv, threads)
            found += measure_engine_steps(executor, tokenizer, formats, self._config.num_rounds)
            self._tell()
        return found


def never_rising(bandwidths: Mapping[int, float]) -> list[tuple[float, float]]:
    """Returns bandwidths by size, made monotonic: a buffer is read at least as fast as a larger
    one, and where it seems slower it was disturbed."""
    found, highest = list[tuple[float, float]](), 0.0
    for size in sorted(bandwidths, reverse=True):
        highest = max(highest, bandwidths[size])
        found.append((float(size), highest))
    return found[::-1]
