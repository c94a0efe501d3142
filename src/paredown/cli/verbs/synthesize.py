"""`paredown synthesize`: training data from a teacher that is asked over HTTP."""

import argparse
from pathlib import Path

from paredown.cli.console import make_console
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.synthesis import print_synthesis
from paredown.distill.black_box.asker import AskLimits
from paredown.distill.black_box.rouge_l import DEFAULT_LIKENESS
from paredown.distill.black_box.synthesize import OPERATIONS, SynthesisConfig, synthesize
from paredown.distill.black_box.teacher import TeacherConfig

EXAMPLES = """The teacher is any address that answers as the OpenAI API does.

examples:
  paredown synthesize --address http://localhost:8000 --model big --input prompts.txt -o data.jsonl
  paredown synthesize --address http://localhost:8000 --model big --ask expand \\
      --input seeds.jsonl --num 1000 -o data.jsonl
  paredown synthesize --address https://api.example.com/v1 --model big --ask correct \\
      --api-key-variable KEY --max-tokens-total 500000 --input answers.jsonl -o data.jsonl
  paredown distill my-model -o student --data data.jsonl --method hard-label

Each answer is kept at once in OUT.asked. A run that was stopped goes on when the same command
is started again; nothing that was answered is asked again.
"""

_LIMITS = AskLimits()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    _add_teacher(parser)
    made = "; ".join(f"{name}: {one.summary}" for name, one in OPERATIONS.items())
    parser.add_argument(
        "--ask",
        choices=list(OPERATIONS),
        default="label",
        help=f"what is asked for. {made} (default: label)",
        metavar="WHAT",
    )
    parser.add_argument(
        "--input",
        type=Path,
        required=True,
        help="JSON lines (.jsonl) with prompt, messages or instruction, for prefer with answers, "
        "for curate with topic and entities; or a text with one prompt or topic in each line",
        metavar="FILE",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="JSON lines to write, which `paredown distill --data` reads",
        metavar="OUT",
    )
    parser.add_argument(
        "--num",
        type=int,
        help="examples that are wanted (default: all that the input gives)",
        metavar="N",
    )
    _add_answers(parser)
    _add_limits(parser)
    add_common_arguments(parser, model=None, threads=False)


def _add_teacher(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address", required=True, help="server of the teacher, as http://HOST:PORT", metavar="URL"
    )
    parser.add_argument("--model", required=True, help="name of the model there", metavar="NAME")
    parser.add_argument(
        "--api-key-variable",
        help="environment variable that holds the key (default: no key is sent)",
        metavar="NAME",
    )


def _add_answers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answers")
    group.add_argument(
        "--answer-tokens",
        type=int,
        default=512,
        help="tokens of one answer, at most (default %(default)s)",
        metavar="N",
    )
    group.add_argument(
        "--temperature",
        type=float,
        default=0.7,
        help="of answers and of new tasks (default %(default)s)",
        metavar="T",
    )
    group.add_argument(
        "--keep-cut", action="store_true", help="keep answers that reached --answer-tokens"
    )
    group.add_argument(
        "--form",
        choices=["messages", "completion"],
        default="messages",
        help="messages, for models with a chat template; completion: prompt and completion "
        "(default: messages)",
        metavar="FORM",
    )
    group.add_argument(
        "--likeness",
        type=float,
        default=DEFAULT_LIKENESS,
        help="leave out a new task whose ROUGE-L to another is so much (default %(default)s)",
        metavar="R",
    )
    group.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of the tasks that the teacher sees as examples (default 0)",
        metavar="N",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--concurrency",
        type=int,
        default=_LIMITS.concurrency,
        help="requests at the same time (default %(default)s)",
        metavar="N",
    )
    group.add_argument(
        "--requests-per-minute",
        type=float,
        help="requests that start in a minute (default: no limit)",
        metavar="N",
    )
    group.add_argument(
        "--max-tokens-total",
        type=int,
        help="tokens of questions and answers, of all runs for OUT (default: no limit)",
        metavar="N",
    )
    group.add_argument(
        "--timeout-s",
        type=float,
        default=300.0,
        help="seconds for one whole answer (default %(default)g)",
        metavar="S",
    )


def run(args: argparse.Namespace) -> int:
    config = SynthesisConfig(
        ask=args.ask,
        input=args.input,
        teacher=TeacherConfig(
            address=args.address,
            model=args.model,
            api_key_variable=args.api_key_variable,
            timeout_s=args.timeout_s,
        ),
        num=args.num,
        limits=AskLimits(
            concurrency=args.concurrency,
            requests_per_minute=args.requests_per_minute,
            max_tokens_total=args.max_tokens_total,
        ),
        answer_tokens=args.answer_tokens,
        temperature=args.temperature,
        keeps_cut=args.keep_cut,
        as_messages=args.form == "messages",
        likeness=args.likeness,
        seed=args.seed,
    )
    with progress_bar(args.ask) as bar:
        made = synthesize(config, args.output, on_progress=bar.show_share)
    if args.json:
        say_json(made.as_json())
    else:
        print_synthesis(make_console(), made)
    return 0
