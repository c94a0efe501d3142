"""`paredown distill`: trains a student to do what its teacher does, and measures it beside it."""

import argparse
from pathlib import Path

from paredown.cli.console import make_console
from paredown.cli.options.distillation import add_distillation_arguments, distill_config
from paredown.cli.options.picture_path import check_picture_path
from paredown.cli.options.quantized import add_quantized_argument, named_model
from paredown.cli.options.shared import add_common_arguments
from paredown.cli.options.verification import add_verification_arguments, read_verify_config
from paredown.cli.printed import say_json
from paredown.cli.progress_bar import progress_bar
from paredown.cli.tables.distillation import print_distillation
from paredown.distill.peers import is_helper
from paredown.evaluate.pictures.training_plot import TrainingCurve, write_training_curve
from paredown.jobs.distill import DistilledCheckpoint, distill_and_verify

EXAMPLES = """MODEL is the teacher.

examples:
  paredown distill -o student
  paredown distill my-model -o student --student every-2 --tokens 1000000
  paredown distill my-model -o student --data chats.jsonl --minutes 30 --plot losses.png
  paredown distill my-model -o student --student pruned --method kl --temperature 2
  paredown distill my-model -o student --student width-50 --teacher-logits logits
  paredown distill my-model -o student --data novel.txt --method hard-label --held-out 0.1
  paredown distill my-model -o student --method tinybert --feature-weight 0.1
  paredown distill my-model -o out --student my-model --method reward --reward rewards:score

The student is measured beside its teacher, before and after. verification.json in the
folder keeps the figures, and what `paredown serve` checks when it loads the checkpoint.
A run that was stopped goes on when the same command is started again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        help="folder to write; must not exist",
        metavar="OUT",
    )
    add_distillation_arguments(parser)
    add_verification_arguments(parser, prefix="verify-")
    add_quantized_argument(parser)
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    config = distill_config(args)
    check_picture_path(args.plot)
    with progress_bar(config.method) as bar:
        made = distill_and_verify(
            named_model(args),
            args.output,
            config,
            verify=read_verify_config(args),
            num_threads=args.threads,
            on_progress=bar.show_share,
        )
    if is_helper():
        return 0
    if args.plot is not None:
        write_training_curve(_curve(made, config.student), args.plot)
    if args.json:
        say_json(made.as_json())
        return 0
    print_distillation(make_console(), made)
    return 0


def _curve(made: DistilledCheckpoint, student: str) -> TrainingCurve:
    training = made.written.training
    return TrainingCurve(
        title=f"{made.method} of {student}",
        steps=[(one.num_tokens, one.loss) for one in training.records],
        held_out=[(one.num_tokens, one.loss) for one in training.judgements],
    )
