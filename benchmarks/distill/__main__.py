"""Measures what training brings, on the built-in model or on SmolLM2.

    python -m benchmarks.distill students codes [--model FOLDER] [--tokens N] [--json OUT]
    python -m benchmarks.distill codes --model FOLDER --recipes qad-int3-g64-20m
    python -m benchmarks.distill codes --model FOLDER --auto-round PYTHON --recipes \
        gptq-int3-g64 auto-round-int3-g64-60 auto-round-int3-g64-200
    python -m benchmarks.distill own-texts reward throughput
    python -m benchmarks.distill black-box --teacher FILE --model FOLDER --examples 300

students   students of one shape, each taught by one method for equal numbers of tokens
codes      codes of 2 and 3 bits: GPTQ, then scales alone, QAD and QAT for equal numbers of tokens
own-texts  MiniLLM beside the student that it starts from, on the texts that they write
reward     a reward alone and after cross-entropy: answers that end in a full stop
throughput training beside Transformers' Trainer, in turns
black-box  a teacher behind our server expands the seed tasks of Self-Instruct for a student

Texts are those of the classic books under PAREDOWN_DATA: trained on the training split, measured on
the test split, which shares no author with it.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from benchmarks.distill.black_box import BlackBox, measure_black_box
from benchmarks.distill.codes import FORMATS, Codes, measure_codes, recipes_of
from benchmarks.distill.own_texts import OwnTexts, measure_own_texts, show_own_texts
from benchmarks.distill.reward import RewardRun, measure_reward, show_reward
from benchmarks.distill.students import (
    AFTER_SOFT_LABEL,
    METHODS,
    TEXT_METHODS,
    Lessons,
    measure_students,
)
from benchmarks.distill.throughput import measure_throughput, show_throughput
from benchmarks.kept_models import KeptModels, kept_models
from paredown.evaluate.texts.text import DATA_VARIABLE
from paredown.kernels.probe import processor_name
from paredown.models.resolve import resolve_model
from paredown.spec.device import Device

PARTS = ("students", "codes", "own-texts", "reward", "throughput", "black-box")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--model", help="a folder (default: the built-in model)")
    parser.add_argument("--student", default="every-2")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=[*TEXT_METHODS, AFTER_SOFT_LABEL]
    )
    parser.add_argument("--batch-tokens", type=int, default=4096, help="of a step of students")
    parser.add_argument("--formats", nargs="+", default=list(FORMATS))
    parser.add_argument("--recipes", nargs="+", help="of codes, instead of those of the formats")
    parser.add_argument("--windows", type=int, default=64, help="that codes are calibrated on")
    parser.add_argument(
        "--auto-round",
        type=Path,
        help="of codes: an interpreter with auto-round 0.16.1, for recipes auto-round-int3-g64-200",
        metavar="PYTHON",
    )
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="of reward")
    parser.add_argument("--kl-weight", type=float, default=0.05, help="of reward")
    parser.add_argument("--warm-share", type=float, default=0.2, help="of reward, cross-entropy")
    parser.add_argument("--steps", type=int, default=3, help="of throughput, the first apart")
    parser.add_argument("--rounds", type=int, default=3, help="of throughput")
    parser.add_argument("--tokens", type=int, default=300_000, help="to train on")
    parser.add_argument("--text-tokens", type=int, default=16_384, help="to measure on")
    parser.add_argument("--train-device", choices=get_args(Device), default="cpu")
    parser.add_argument("--teacher", type=Path, help="of black-box: a folder or a GGUF file")
    parser.add_argument("--examples", type=int, default=1000, help="of black-box")
    parser.add_argument("--questions", type=int, default=252, help="of black-box, for ROUGE-L")
    parser.add_argument("--folder", type=Path, help="keeps the models, and goes on from them")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {"machine": processor_name(), "model": args.model or "built-in"}
    settings = {
        "model": str(resolve_model(args.model)),
        "student": args.student,
        "tokens": args.tokens,
        "text_tokens": args.text_tokens,
        "batch_tokens": args.batch_tokens,
        "train_device": args.train_device,
        "windows": args.windows,
    }
    with kept_models(args.folder, settings) as models:
        for part in args.parts:
            found[part] = run(part, models.part(part), args)
            if args.json is not None:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=2) + "\n")


def run(part: str, models: KeptModels, args: argparse.Namespace) -> dict[str, Any]:
    if part == "students":
        found = measure_students(lessons_of(args), args.methods, models)
        show_students(found)
    elif part == "own-texts":
        found = measure_own_texts(lessons_of(args), OwnTexts(), models)
        show_own_texts(found)
    elif part == "reward":
        found = measure_reward(reward_of(args), models)
        show_reward(found)
    elif part == "throughput":
        found = measure_throughput(
            resolve_model(args.model), args.batch_tokens, args.steps, args.rounds
        )
        show_throughput(found)
    elif part == "black-box":
        found = measure_black_box(black_box_of(args), models.path)
        Console().print_json(data=found)
    else:
        recipes = args.recipes
        if recipes is None:
            recipes = [one for form in args.formats for one in recipes_of(form, args.tokens)]
        codes = Codes(
            model=args.model,
            num_windows=args.windows,
            num_text_tokens=args.text_tokens,
            train_device=args.train_device,
            auto_round=args.auto_round,
        )
        found = measure_codes(codes, recipes, models)
        show_codes(found)
    return found


def lessons_of(args: argparse.Namespace) -> Lessons:
    return Lessons(
        teacher=args.model,
        student=args.student,
        num_tokens=args.tokens,
        num_text_tokens=args.text_tokens,
        batch_tokens=args.batch_tokens,
        train_device=args.train_device,
    )


def reward_of(args: argparse.Namespace) -> RewardRun:
    return RewardRun(
        model=args.model,
        num_tokens=args.tokens,
        batch_tokens=args.batch_tokens,
        learning_rate=args.learning_rate,
        kl_weight=args.kl_weight,
        warm_share=args.warm_share,
    )


def black_box_of(args: argparse.Namespace) -> BlackBox:
    data = os.environ.get(DATA_VARIABLE)
    if args.teacher is None or args.model is None or data is None:
        raise SystemExit(f"Give --teacher and --model, and set {DATA_VARIABLE} for the seed tasks.")
    return BlackBox(
        teacher=args.teacher,
        student=Path(args.model),
        seeds=Path(data) / "tasks" / "self-instruct" / "seed_tasks.jsonl",
        num_examples=args.examples,
        num_tokens=args.tokens,
        num_questions=args.questions,
    )


def show_students(found: dict[str, Any]) -> None:
    table = Table("method", "KL", "perplexity", "top-1", "minutes")
    first = next(iter(found.values()))
    before = first["before"]
    table.add_row("as it starts", f"{before['kl']:.4f}", f"{before['perplexity']:.2f}", "", "")
    for method, own in found.items():
        table.add_row(
            method,
            f"{own['kl']:.4f}",
            f"{own['perplexity']:.2f}",
            f"{own['top1_agreement']:.1%}",
            f"{own['minutes']:.1f}",
        )
    Console().print(table)
    Console().print(f"the teacher's perplexity: {first['teacher_perplexity']:.2f}")


def show_codes(found: dict[str, Any]) -> None:
    table = Table("recipe", "KL", "perplexity", "top-1", "seconds", "tokens")
    for recipe, own in found.items():
        table.add_row(
            recipe,
            f"{own['kl']:.4f}",
            f"{own['perplexity']:.2f}",
            f"{own['top1_agreement']:.1%}",
            f"{own['seconds']:.0f}",
            f"{own['num_tokens']:,}" if "num_tokens" in own else "",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
