"""A short sweep of this machine's kernels: steps of small models of several sizes, timed.

What is in the way of a step only ever adds to its time, so the lower quartile of the rounds counts.
The models are made up; what is fitted to them (cost/calibrate.py) is used for others.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paredown.cost.calibrate import MeasuredEngineStep, MeasuredStep, Sweep, calibrate
from paredown.cost.calibration import Calibration
from paredown.cost.model_formats import ModelFormats
from paredown.cost.roofline import Roofs
from paredown.cost.step_cost import StepLoad, decode_load, prefill_load
from paredown.engine.executor import SequenceSlice
from paredown.engine.native.native_executor import NativeExecutor
from paredown.evaluate.engine_steps import measure_engine_steps, num_engine_pages
from paredown.evaluate.quartile import lower_quartile
from paredown.evaluate.random_model import random_model
from paredown.formats.table import FORMATS
from paredown.kernels.probe import measure_bandwidth
from paredown.models.resolve import resolve_model
from paredown.models.tokenizer import Tokenizer
from paredown.progress import OnCount
from paredown.spec.kv import KV_DTYPES, PAGE_SIZE, KVDType, KVSpec
from paredown.spec.machine import Machine
from paredown.spec.model import ModelSpec, Rotary
from paredown.spec.weight import WeightSpec
from paredown.units import MEBI

BANDWIDTH_BYTES = tuple(size * MEBI for size in (2, 8, 32, 64, 128, 256, 512, 1024))
_MAX_CONTEXT = 4096
# Times in a row for which a step is run at most, and seconds after which it is not run again.
_NUM_REPEATS = 8
_ROW_S = 0.03
# The first of them find in the caches what another step has left there.
_NUM_WARMING = 3


def _model(hidden: int, intermediate: int, layers: int, heads: tuple[int, int, int]) -> ModelSpec:
    """`heads`: how many, how many of keys and values, columns of each."""
    num_heads, num_kv_heads, head_dim = heads
    return ModelSpec(
        family="llama",
        vocab_size=2048,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=intermediate,
        max_positions=_MAX_CONTEXT + 512,
        positions=Rotary(theta=10000.0),
        norm="rms",
        norm_eps=1e-5,
        activation="silu",
        gated=True,
    )


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """What is measured. `small` models differ in their number of layers alone, those in `models` in
    how much of a cache they fill; attention is that of `models[:num_attention_models]`, and what
    the engine takes beside its executor that of `small[0]` and `models[:num_engine_models]`."""

    formats: tuple[str, ...] = ("bf16", "int8", "w8a8", "int4-g32", "int4-g128")
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
    num_rounds: int = 5
    bandwidth_bytes: tuple[int, ...] = BANDWIDTH_BYTES


def sweep_machine(
    machine: Machine, config: SweepConfig | None = None, on_progress: OnCount | None = None
) -> Calibration:
    """Measures and fits; takes a few minutes on two cores. Raises ConfigError for an unknown
    format."""
    return _Sweeper(machine, config or SweepConfig(), on_progress).run()


class _Sweeper:
    def __init__(self, machine: Machine, config: SweepConfig, on_progress: OnCount | None) -> None:
        self._machine = machine
        self._config = config
        self._on_progress = on_progress
        self._num_done = 0

    def run(self) -> Calibration:
        config, threads = self._config, self._machine.num_threads
        bandwidths = []
        for size in config.bandwidth_bytes:
            bandwidths.append((float(size), measure_bandwidth(threads, size)))
            self._tell()
        small = [step for spec in config.small for step in self._linear_steps(spec, "bf16")]
        linear = {
            name: [step for spec in config.models for step in self._linear_steps(spec, name)]
            for name in config.formats
        }
        attention: dict[str, list[tuple[MeasuredStep, MeasuredStep]]] = {
            dtype: self._attention_steps(dtype) for dtype in config.kv_dtypes
        }
        beside = (config.small[0], *config.models[: config.num_engine_models])
        engine = [self._engine_steps(spec) for spec in beside]
        sweep = Sweep(small=small, linear=linear, attention=attention, engine=engine)
        return calibrate(
            sweep,
            roofs=Roofs.of(self._machine),
            isa=self._machine.isa,
            num_threads=threads,
            bandwidths=bandwidths,
        )

    def _tell(self) -> None:
        config = self._config
        total = (
            len(config.bandwidth_bytes)
            + len(config.small)
            + len(config.formats) * len(config.models)
            + len(config.kv_dtypes) * config.num_attention_models
            + len(config.vocab_sizes) * (1 + config.num_engine_models)
        )
        self._num_done += 1
        if self._on_progress is not None:
            self._on_progress(self._num_done, total)

    def _linear_steps(self, spec: ModelSpec, name: str) -> list[MeasuredStep]:
        """One chunk from the beginning, of each number of tokens."""
        loads = [Load(1, 0, num_tokens) for num_tokens in self._config.num_tokens]
        executor = self._executor(spec, FORMATS[name], loads)
        formats = ModelFormats(linear=FORMATS[name], output=FORMATS[name])
        found = self._measured(executor, formats, loads)
        self._tell()
        return found

    def _attention_steps(self, dtype: KVDType) -> list[tuple[MeasuredStep, MeasuredStep]]:
        """The same tokens, after nothing and after contexts."""
        config, pairs = self._config, []
        for spec in config.models[: config.num_attention_models]:
            contexts = [
                (Load(number, 0, 1), Load(number, context - 1, 1))
                for number in config.num_sequences
                for context in config.contexts
            ] + [
                (Load(1, 0, num_tokens), Load(1, context - num_tokens, num_tokens))
                for num_tokens in config.chunk_tokens
                for context in config.contexts
                if context > num_tokens
            ]
            loads = list(dict.fromkeys(load for pair in contexts for load in pair))
            weights = FORMATS[config.formats[0]]
            executor = self._executor(spec, weights, loads, dtype)
            formats = ModelFormats(linear=weights, output=weights, kv_dtype=dtype)
            found = dict(zip(loads, self._measured(executor, formats, loads), strict=True))
            pairs += [(found[short], found[long]) for short, long in contexts]
            self._tell()
        return pairs

    def _engine_steps(self, spec: ModelSpec) -> list[MeasuredEngineStep]:
        tokenizer, weights = Tokenizer.open(resolve_model(None)), FORMATS["bf16"]
        formats, found = ModelFormats(linear=weights, output=weights), []
        kv, threads = KVSpec(num_pages=num_engine_pages()), self._machine.num_threads
        for vocab_size in self._config.vocab_sizes:
            executor = random_model(replace(spec, vocab_size=vocab_size), weights, kv, threads)
            found += measure_engine_steps(executor, tokenizer, formats, self._config.num_rounds)
            self._tell()
        return found

    def _executor(
        self,
        spec: ModelSpec,
        weights: WeightSpec,
        loads: Sequence["Load"],
        dtype: KVDType = "bf16",
    ) -> NativeExecutor:
        kv = KVSpec(num_pages=max(load.num_pages for load in loads), dtype=dtype)
        return random_model(spec, weights, kv, self._machine.num_threads)

    def _measured(
        self, executor: NativeExecutor, formats: ModelFormats, loads: Sequence["Load"]
    ) -> list[MeasuredStep]:
        """All loads in turn, in rounds; one more does not count. A short step comes several times
        in a row, as in decoding: what the caches hold is then its own."""
        seconds: dict[Load, list[float]] = {load: [] for load in loads}
        for number in range(self._config.num_rounds + 1):
            for load, found in seconds.items():
                row = _row(executor, load.slices())
                if number > 0:
                    found += row[_NUM_WARMING:] or row[-1:]
        return [
            MeasuredStep(
                spec=executor.spec,
                formats=formats,
                load=load.step_load(),
                seconds=lower_quartile(seconds[load]),
            )
            for load in loads
        ]


def _row(executor: NativeExecutor, slices: list[SequenceSlice]) -> list[float]:
    """Seconds of a step, again and again."""
    found = list[float]()
    while len(found) < _NUM_REPEATS and sum(found) < _ROW_S:
        started = time.perf_counter()
        executor.step(slices)
        found.append(time.perf_counter() - started)
    return found


@dataclass(frozen=True)
class Load:
    """`num_tokens` tokens from position `start` on, in each of `num_sequences`."""

    num_sequences: int
    start: int
    num_tokens: int

    @property
    def _pages_each(self) -> int:
        return -(-(self.start + self.num_tokens) // PAGE_SIZE)

    @property
    def num_pages(self) -> int:
        return self.num_sequences * self._pages_each

    def slices(self) -> list[SequenceSlice]:
        """As the executor takes it, with a row of logits for each."""
        each = self._pages_each
        return [
            SequenceSlice(
                token_ids=[i % 1000 for i in range(self.num_tokens)],
                start=self.start,
                pages=list(range(number * each, (number + 1) * each)),
                num_logits=1,
            )
            for number in range(self.num_sequences)
        ]

    def step_load(self) -> StepLoad:
        if self.num_tokens == 1:
            return decode_load(self.num_sequences, self.start + 1)
        assert self.num_sequences == 1
        return prefill_load(self.num_tokens, self.start)
