"""The cases that are measured, and the bars that the project sets itself for them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.checkpoints.cache import Variant
from benchmarks.peers.peer import LoadOptions, PeerKVDType

Task = Literal["prefill", "decode", "start"]

PREFILL_TOKENS = 512
DECODE_PROMPT_TOKENS = 64
DECODE_STEPS = 64
# The values of llama-batched-bench.
BATCH_PROMPT_TOKENS = 128
BATCH_STEPS = 64
LONG_CONTEXT_TOKENS = 4096
LONG_CONTEXT_STEPS = 32
MODELS = ("qwen2.5-0.5b", "llama-3.2-1b", "llama-15m")
# The arithmetic whose measured peak a format is compared with.
PEAK_UNITS = {
    "bf16": "bf16",
    "int8": "int8",
    "w8a8": "int8",
    "int4-g32": "int8",
    "int4-g128": "int8",
    "w4a8-g32-qoq": "int8",
    "q4_k": "int8",
    "q4_k_m": "int8",
    "q5_k_m": "int8",
    "q6_k": "int8",
    "file": "int8",
}
# The output layer's format beside linear layers of a format; 8 bits cost little there.
OUTPUT_FORMATS = {
    "int4-g32": "int8",
    "int4-g128": "int8",
    "w4a8-g32-qoq": "int8",
    "int8": "int8",
    "w8a8": "int8",
    "q4_k": "q4_k",
}
# Four bits in groups of 32, with float scales and with integer steps: both beside Q4_0.
FOUR_BIT_FORMATS = ("int4-g32", "w4a8-g32-qoq")

SINGLE_FORMATS = (*FOUR_BIT_FORMATS, "int4-g128", "int8", "bf16")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The target of a case: a ratio to the best peer, a share of the machine's limit (MFU for
    prefill, MBU for decode), or seconds for a start. None sets no target."""

    min_ratio: float | None = None
    min_utilization: float | None = None
    max_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row. `rival_kv_dtype` adds ourselves with another KV format to the rivals, which must be
    slower. `with_peers` is False where no peer has the format."""

    task: Task
    variant: Variant
    prompt_tokens: int
    num_steps: int = 0
    num_sequences: int = 1
    kv_dtype: PeerKVDType = "bf16"
    rival_kv_dtype: PeerKVDType | None = None
    with_peers: bool = True
    bar: Bar = Bar()

    @property
    def name(self) -> str:
        parts = [self.task, self.variant.model, self.variant.name]
        if self.task != "start":
            parts.append(f"p{self.prompt_tokens}")
        if self.num_sequences > 1:
            parts.append(f"b{self.num_sequences}")
        if self.kv_dtype != "bf16":
            parts.append(f"kv-{self.kv_dtype}")
        if self.rival_kv_dtype is not None:
            parts.append("ours-alone")
        return " ".join(parts)

    @property
    def tokens_per_run(self) -> int:
        """Returns how many tokens a rate counts."""
        return self.prompt_tokens if self.task == "prefill" else self.num_steps * self.num_sequences

    def load_options(self, num_threads: int, kv_dtype: PeerKVDType | None = None) -> LoadOptions:
        return LoadOptions(
            num_threads=num_threads,
            num_tokens=self.prompt_tokens + self.num_steps,
            num_sequences=self.num_sequences,
            kv_dtype=kv_dtype or self.kv_dtype,
        )

    def prompts(self, vocab_size: int) -> list[list[int]]:
        """Returns token ids that are spread over the vocabulary and differ for each sequence."""
        step = 7919
        return [
            [(step * (i + 1) + sequence * 104729) % vocab_size for i in range(self.prompt_tokens)]
            for sequence in range(self.num_sequences)
        ]


PREFILL_BARS = {
    **dict.fromkeys(FOUR_BIT_FORMATS, Bar(min_ratio=1.5, min_utilization=0.55)),
    "q4_k": Bar(min_ratio=1.0),
    "int4-g128": Bar(min_utilization=0.65),
    "w8a8": Bar(min_ratio=1.6, min_utilization=0.75),
    "bf16": Bar(min_ratio=1.15, min_utilization=0.80),
}
DECODE_BARS = {
    **dict.fromkeys(FOUR_BIT_FORMATS, Bar(min_ratio=1.08, min_utilization=0.88)),
    "q4_k": Bar(min_ratio=1.0),
    "int4-g128": Bar(),
    "int8": Bar(min_ratio=1.08, min_utilization=0.90),
    "bf16": Bar(min_ratio=1.05, min_utilization=0.92),
}
BATCH_BARS = {8: Bar(min_ratio=2.2), 32: Bar(min_ratio=2.5)}


def all_cases(output_formats: dict[str, str]) -> list[Case]:
    """Returns every case. `output_formats` overrides OUTPUT_FORMATS, by the format of the linear
    layers."""
    known = OUTPUT_FORMATS | output_formats
    cases = [
        *(case for model in MODELS[:2] for case in _single_cases(model)),
        # The other models' rows are no whole super-blocks.
        *_single_cases("llama-3.2-1b", ("q4_k",)),
        *_batch_cases("qwen2.5-0.5b", (32,)),
        *_batch_cases("llama-3.2-1b", (8, 32)),
        *_small_model_cases(),
        *_long_context_cases("llama-3.2-1b"),
        Case(
            task="start",
            variant=Variant(model="llama-3.2-1b", format="int4-g32"),
            prompt_tokens=1,
            num_steps=1,
            bar=Bar(max_seconds=1.0),
        ),
    ]
    return [
        replace(
            case,
            variant=replace(case.variant, output_format=known.get(case.variant.format, "bf16")),
        )
        for case in cases
    ]


def _single_cases(model: str, formats: Sequence[str] = SINGLE_FORMATS) -> list[Case]:
    cases = []
    for name in formats:
        variant = Variant(model=model, format=name)
        with_peers = name != "int4-g128"
        # One scale per row on both sides where prefill speed matters.
        prefill_format = "w8a8" if name == "int8" else name
        prefill = Case(
            task="prefill",
            variant=Variant(model=model, format=prefill_format),
            prompt_tokens=PREFILL_TOKENS,
            with_peers=with_peers,
            bar=PREFILL_BARS[prefill_format],
        )
        decode = Case(
            task="decode",
            variant=variant,
            prompt_tokens=DECODE_PROMPT_TOKENS,
            num_steps=DECODE_STEPS,
            with_peers=with_peers,
            bar=DECODE_BARS[name],
        )
        cases += [prefill, decode]
    return cases


def _batch_cases(model: str, sizes: Sequence[int]) -> list[Case]:
    return [
        Case(
            task="decode",
            variant=Variant(model=model, format=name),
            prompt_tokens=BATCH_PROMPT_TOKENS,
            num_steps=BATCH_STEPS,
            num_sequences=num_sequences,
            bar=BATCH_BARS[num_sequences],
        )
        for name in FOUR_BIT_FORMATS
        for num_sequences in sizes
    ]


def _small_model_cases() -> list[Case]:
    cases = []
    for name in FOUR_BIT_FORMATS:
        variant = Variant(model="llama-15m", format=name)
        prefill = Case(
            task="prefill",
            variant=variant,
            prompt_tokens=PREFILL_TOKENS,
            bar=Bar(min_ratio=1.5),
        )
        decode = Case(
            task="decode",
            variant=variant,
            prompt_tokens=DECODE_PROMPT_TOKENS,
            num_steps=DECODE_STEPS,
            bar=Bar(min_ratio=1.2),
        )
        cases += [prefill, decode]
    return cases


def _long_context_cases(model: str) -> list[Case]:
    case = Case(
        task="decode",
        variant=Variant(model=model, format="int4-g32"),
        prompt_tokens=LONG_CONTEXT_TOKENS,
        num_steps=LONG_CONTEXT_STEPS,
        bar=Bar(min_ratio=1.2),
    )
    narrow = replace(case, kv_dtype="int8")
    faster = replace(narrow, rival_kv_dtype="bf16", with_peers=False, bar=Bar(min_ratio=1.0))
    return [case, narrow, faster]
