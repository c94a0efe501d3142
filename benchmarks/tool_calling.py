"""How often a model calls the right tool, and whether an agent's loop comes to its end.

    python -m benchmarks.tool_calling --model FILE [--choices required auto] [--json OUT]

`paredown serve` runs in another process. An agent of openai-agents asks each of ten questions
(benchmarks/tool_cases.py) over chat completions, with five tools, greedily. Its first turn has the
`tool_choice` of the row; after results it may answer.

called     the first turn has at least one call
valid      of those turns, how many have arguments that the tools' schemas allow, in every call
right      the first call is of the right tool, with the arguments that the question gives
ran        the agent ran the tool and gave the model its result
ended      the loop came to an answer within MAX_TURNS turns
seconds    of a question, the median
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jsonschema
from agents import (
    Agent,
    AgentsException,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunErrorDetails,
    Runner,
    RunResult,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from benchmarks.http_speed import served
from benchmarks.tool_cases import CASES, FUNCTIONS, ToolCase
from paredown.kernels.probe import default_num_threads, processor_name

MAX_TURNS = 3
MAX_ANSWER_TOKENS = 96
Choice = Literal["required", "auto"]


@dataclass(kw_only=True)
class Loop:
    """The course of one question. `calls` are the name and the JSON text of each call of the first
    turn."""

    case: ToolCase
    calls: list[tuple[str, str]] = field(default_factory=list)
    has_run: bool = False
    answer: str | None = None
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        if not self.calls or self.calls[0][0] != self.case.tool:
            return False
        given = _loaded(self.calls[0][1])
        return isinstance(given, dict) and self.case.arguments.items() <= given.items()

    def is_valid(self, schemas: Mapping[str, dict[str, Any]]) -> bool:
        """Returns whether the schemas allow the arguments of every call."""
        for name, text in self.calls:
            try:
                jsonschema.validate(_loaded(text), schemas[name])
            except jsonschema.ValidationError:
                return False
        return True


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


async def ask(model: OpenAIChatCompletionsModel, case: ToolCase, choice: Choice) -> Loop:
    """Runs an agent's loop over one question."""
    loop = Loop(case=case)
    agent = Agent(
        name="helper",
        instructions="Use the tools to help. Answer in one short sentence.",
        model=model,
        tools=[function_tool(function) for function in FUNCTIONS],
        model_settings=ModelSettings(
            tool_choice=choice,
            temperature=0,
            max_tokens=MAX_ANSWER_TOKENS,
            parallel_tool_calls=False,
        ),
    )
    start_s = time.monotonic()
    try:
        result = await Runner.run(
            agent, case.question, max_turns=MAX_TURNS, run_config=RunConfig(tracing_disabled=True)
        )
        done: RunResult | RunErrorDetails | None = result
        loop.answer = str(result.final_output)
    except AgentsException as error:  # turns without an end, or a call that fits no tool
        done = error.run_data
    loop.seconds = time.monotonic() - start_s
    if done is not None:
        first = done.raw_responses[0].output
        loop.calls = [(one.name, one.arguments) for one in first if one.type == "function_call"]
        loop.has_run = any(item.type == "tool_call_output_item" for item in done.new_items)
    return loop


async def ask_all(url: str, choices: Sequence[Choice]) -> dict[str, list[Loop]]:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    name = (await client.models.list()).data[0].id
    model = OpenAIChatCompletionsModel(model=name, openai_client=client)
    return {choice: [await ask(model, case, choice) for case in CASES] for choice in choices}


def row(choice: str, loops: Sequence[Loop]) -> dict[str, str | int | float]:
    schemas = {tool.name: tool.params_json_schema for tool in map(function_tool, FUNCTIONS)}
    called = [loop for loop in loops if loop.calls]
    return {
        "choice": choice,
        "questions": len(loops),
        "called": len(called),
        "valid": sum(loop.is_valid(schemas) for loop in called),
        "right": sum(loop.is_right for loop in loops),
        "ran": sum(loop.has_run for loop in loops),
        "ended": sum(loop.answer is not None for loop in loops),
        "seconds": round(statistics.median(loop.seconds for loop in loops), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--choices", nargs="+", default=["required", "auto"], metavar="CHOICE")
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args()
    set_tracing_disabled(True)
    with served(args.model, args.threads) as (url, _):
        found = asyncio.run(ask_all(url, args.choices))
    rows = [row(choice, loops) for choice, loops in found.items()]
    print(f"{processor_name()}, {args.threads} threads")
    print("".join(f"{name:>10}" for name in rows[0]))
    for one in rows:
        print("".join(f"{value:>10}" for value in one.values()))
    for choice, loops in found.items():
        for loop in loops:
            print(f"{choice}: {loop.case.question} {loop.calls} {loop.answer!r}")
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
