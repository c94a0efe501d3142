"""Speed of answers under a JSON schema, beside answers without one.

    python -m benchmarks.structured MODEL [--sequences 1 32] [--tokens 96] [--rounds 5] [--json]

All answers have as many tokens: the schema is a list that has not come to its end by then, and the
others ignore their end. Rounds take turns, and a round's ratio is that of its two times; the table
has the median of the ratios, of elapsed and of processor time. The latter is less moved by what
else runs. The grammar is compiled before the first round.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from paredown.engine.grammar.grammar import Grammar
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig

SCHEMA = {
    "type": "array",
    "minItems": 100,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "city": {"type": "string", "maxLength": 40},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
            "married": {"type": "boolean"},
        },
        "required": ["name", "age", "city", "tags", "married"],
        "additionalProperties": False,
    },
}
PROMPT = "A list of people with name, age, city, tags and whether they are married, as JSON: "


@dataclass(frozen=True, kw_only=True)
class Row:
    """Tokens a second of all sequences together; `ratio` is the median of the rounds, and
    `processor_ratio` that of processor time."""

    sequences: int
    temperature: float
    free_tokens_per_s: float
    schema_tokens_per_s: float
    ratio: float
    lowest_ratio: float
    highest_ratio: float
    processor_ratio: float


def measure(
    llm: LLM, num_sequences: int, num_tokens: int, num_rounds: int, temperature: float
) -> Row:
    free = SamplingParams(temperature=temperature, max_tokens=num_tokens, ignore_eos=True)
    under = replace(free, grammar=Grammar.json_schema(SCHEMA))
    seconds = dict[str, list[float]](free=[], schema=[])
    processor = dict[str, list[float]](free=[], schema=[])
    for i in range(num_rounds + 1):
        for name, params in (("free", free), ("schema", under)):
            taken_s, processor_s = time_answers(llm, params, num_sequences)
            if i:  # the first round warms up
                seconds[name].append(taken_s)
                processor[name].append(processor_s)
    ratios, processor_ratios = (
        [x / y for x, y in zip(both["free"], both["schema"], strict=True)]
        for both in (seconds, processor)
    )
    num_all = num_sequences * num_tokens
    return Row(
        sequences=num_sequences,
        temperature=temperature,
        free_tokens_per_s=num_all / statistics.median(seconds["free"]),
        schema_tokens_per_s=num_all / statistics.median(seconds["schema"]),
        ratio=statistics.median(ratios),
        lowest_ratio=min(ratios),
        highest_ratio=max(ratios),
        processor_ratio=statistics.median(processor_ratios),
    )


def time_answers(llm: LLM, params: SamplingParams, num_sequences: int) -> tuple[float, float]:
    """Returns the seconds of one batch, elapsed and of the processor. All answers must have their
    full length."""
    some = [replace(params, seed=i) for i in range(num_sequences)]
    start_s, start_processor_s = time.perf_counter(), time.process_time()
    answers = llm.generate([PROMPT] * num_sequences, some)
    taken_s = time.perf_counter() - start_s
    processor_s = time.process_time() - start_processor_s
    assert all(len(one.token_ids) == params.max_tokens for one in answers)
    return taken_s, processor_s


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    config = ScheduleConfig(max_running=max(options.sequences))
    llm = LLM(options.model, config=config, num_pages=16 * max(options.sequences))
    rows = [
        measure(llm, num, options.tokens, options.rounds, temperature)
        for num in options.sequences
        for temperature in options.temperatures
    ]
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    names = "sequences | temperature | without, tokens/s | schema, tokens/s | ratio | rounds"
    print(f"| {names} | processor |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        rounds = f"{row.lowest_ratio:.2f} to {row.highest_ratio:.2f}"
        print(
            f"| {row.sequences} | {row.temperature} | {row.free_tokens_per_s:.1f} | "
            f"{row.schema_tokens_per_s:.1f} | {row.ratio:.2f} | {rounds} | "
            f"{row.processor_ratio:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
