"""The cases in which two builds alternate: prompts, steps, and loading."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.cases import (
    BATCH_PROMPT_TOKENS,
    DECODE_PROMPT_TOKENS,
    MODELS,
    OUTPUT_FORMATS,
    PEAK_UNITS,
    PREFILL_TOKENS,
    Case,
    all_cases,
)
from benchmarks.checkpoints.cache import Variant
from paredown.errors import ConfigError

LoadingTask = Literal["packing", "mapped"]
FORMATS = tuple(PEAK_UNITS)
NUM_SEQUENCES = 8


@dataclass(frozen=True, kw_only=True)
class LoadingCase:
    """`packing` is the time to read and pack a checkpoint. `mapped` is a whole start with packed
    weights that an earlier process kept, from the first import to the first token."""

    task: LoadingTask
    variant: Variant

    @property
    def name(self) -> str:
        return f"{self.task} {self.variant.model} {self.variant.name}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The cases to run: those of the models and formats whose name has every word of `words` and
    none of `without`."""

    models: Sequence[str] = MODELS
    formats: Sequence[str] = FORMATS
    words: Sequence[str] = ()
    without: Sequence[str] = ()

    def has(self, case: Case | LoadingCase) -> bool:
        """Returns whether the case is to be run."""
        words = case.name.split()
        return (
            case.variant.model in self.models
            and case.variant.format in self.formats
            and all(word in words for word in self.words)
            and not any(word in words for word in self.without)
        )


def chosen_cases(choice: Choice, num_steps: int) -> list[Case | LoadingCase]:
    """Returns the chosen cases; a turn of a decode has at most `num_steps` steps. Raises
    ConfigError if there are none."""
    known: list[Case | LoadingCase] = [*_step_cases(num_steps), *_loading_cases()]
    cases = [case for case in known if choice.has(case)]
    if not cases:
        raise ConfigError(
            "no case has these words",
            seen=" ".join([*choice.models, *choice.formats, *choice.words]),
            remedy="Known: " + "; ".join(case.name for case in known),
        )
    return cases


def _variants(models: Iterable[str]) -> list[Variant]:
    return [
        Variant(model=model, format=name, output_format=OUTPUT_FORMATS.get(name, "bf16"))
        for model, name in itertools.product(models, FORMATS)
    ]


def _step_cases(num_steps: int) -> list[Case]:
    """Returns the cases of benchmarks.cpu_peers, plus a prompt, a decode and a batch for every
    format."""
    known = [case for case in all_cases({}) if case.task != "start" and not case.rival_kv_dtype]
    for variant in _variants(MODELS[:2]):
        prompt = Case(task="prefill", variant=variant, prompt_tokens=PREFILL_TOKENS)
        decode = Case(
            task="decode",
            variant=variant,
            prompt_tokens=DECODE_PROMPT_TOKENS,
            num_steps=num_steps,
        )
        batch = replace(decode, prompt_tokens=BATCH_PROMPT_TOKENS, num_sequences=NUM_SEQUENCES)
        known += [prompt, decode, batch]
    by_name = {
        case.name: replace(case, with_peers=True, num_steps=min(case.num_steps, num_steps))
        for case in reversed(known)
    }
    return list(reversed(by_name.values()))


def _loading_cases() -> list[LoadingCase]:
    tasks: tuple[LoadingTask, ...] = ("packing", "mapped")
    return [
        LoadingCase(task=task, variant=variant)
        for variant in _variants(MODELS[:2])
        for task in tasks
    ]
