"""`paredown eval --task`: answers the questions of a task and scores the answers."""

import argparse
from dataclasses import asdict
from functools import partial

from rich.table import Table

from paredown.cli.console import make_console
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.notes import tell_notes
from paredown.cli.verbs.eval_glue import run_glue
from paredown.engine.llm import LLM
from paredown.evaluate.tasks.glue import TASKS as GLUE_TASKS
from paredown.evaluate.tasks.rouge import load_rouge
from paredown.evaluate.tasks.self_instruct import (
    DEFAULT_ANSWER_TOKENS,
    SelfInstructResult,
    measure_self_instruct,
    read_instructions,
)

SELF_INSTRUCT = "selfinst"


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("task")
    group.add_argument(
        "--task",
        choices=(SELF_INSTRUCT, *GLUE_TASKS),
        help="score answers instead of predicting a text, on files from $PAREDOWN_DATA or --text. "
        "selfinst: ROUGE-L of greedy answers to the 252 instructions of Self-Instruct; needs "
        "rouge-score. glue-...: labels of a classifier, or similarities of an encoder's vectors",
    )
    group.add_argument("--limit", type=int, help="so many questions or rows alone", metavar="N")
    group.add_argument(
        "--answer-tokens",
        type=int,
        default=DEFAULT_ANSWER_TOKENS,
        help="longest answer (default %(default)s)",
        metavar="N",
    )


def run_task(args: argparse.Namespace) -> int:
    if args.task in GLUE_TASKS:
        return run_glue(args)
    rouge = load_rouge()
    instructions = read_instructions(args.text, args.limit)
    names = {"model": args.model}
    if args.reference is not None:
        names["reference"] = args.reference
    results: dict[str, SelfInstructResult] = {}
    for name, model in names.items():
        llm = LLM(
            model,
            num_threads=args.threads,
            kv_dtype=args.kv_dtype,
            activations=args.activations,
        )
        tell_notes(llm.notes)
        measure = partial(measure_self_instruct, llm, instructions, rouge)
        with progress_bar(f"answering: {name}") as bar:
            results[name] = measure(answer_tokens=args.answer_tokens, on_progress=bar.show_count)
        del llm, measure  # two models need not fit in memory together
    if args.json:
        say_json(_as_json(args.task, results))
        return 0
    make_console().print(_table(args.task, results))
    return 0


def _as_json(task: str, results: dict[str, SelfInstructResult]) -> dict[str, object]:
    reference = results.get("reference")
    return {
        "task": task,
        "model": asdict(results["model"]),
        "reference": None if reference is None else asdict(reference),
    }


def _table(task: str, results: dict[str, SelfInstructResult]) -> Table:
    table = Table(task, *results)
    columns = list(results.values())
    table.add_row("ROUGE-L", *(f"{one.rouge_l:.2%}" for one in columns))
    table.add_row(
        "instructions",
        *(
            f"{one.num_instructions} ({one.num_left_out} too long for the context)"
            if one.num_left_out
            else str(one.num_instructions)
            for one in columns
        ),
    )
    table.add_row("tokens of an answer", *(f"{one.mean_answer_tokens:.0f}" for one in columns))
    table.add_row("answers that end", *(f"{one.ended:.0%}" for one in columns))
    table.add_row("asked by", *(f"{one.asked} prompt" for one in columns))
    return table
