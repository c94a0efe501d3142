"""The options of `paredown distill`: the student, the method, the data and the training."""

import argparse
from pathlib import Path

from paredown.cli.options.training import add_train_device_argument
from paredown.distill.data.training_data import (
    DEFAULT_HELD_OUT,
    DEFAULT_ROW_TOKENS,
    TrainingDataConfig,
)
from paredown.distill.distill import DistillConfig
from paredown.distill.methods import AUTO, METHODS, MethodOptions
from paredown.distill.teacher_logits.teacher_logits import DEFAULT_KEEP, TeacherLogits
from paredown.distill.train_config import TrainConfig
from paredown.errors import ConfigError

DEFAULT_TOKENS = 500_000
_TRAIN = TrainConfig(num_tokens=DEFAULT_TOKENS)
_OPTIONS = MethodOptions()


def add_distillation_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--student",
        default="every-2",
        help="what is trained: every-K keeps every K-th layer of the teacher, width-P keeps P "
        "percent of its width, every-K+width-P both; CONFIG.json is a new model of that shape, "
        "FOLDER a checkpoint of yours, as a pruned one (default: every-2)",
        metavar="STUDENT",
    )
    methods = "; ".join(f"{name}: {method.summary}" for name, method in METHODS.items())
    parser.add_argument(
        "--method",
        choices=[*METHODS, AUTO],
        default="soft-label",
        help=f"what the student learns. {methods}; {AUTO}: what suits the reward and the text "
        "that are given (default: soft-label)",
        metavar="METHOD",
    )
    _add_reward(parser)
    _add_method_numbers(parser)
    _add_teacher_logits(parser)
    _add_data(parser)
    _add_training(parser)


# Option, help and placeholder of each number of a method.
_NUMBERS = (
    ("temperature", "of the teacher's distribution; above 1, unlikely tokens count for more", "T"),
    ("label_weight", "soft-label: weight of the text's own token beside the teacher", "W"),
    ("beta", "jsd, gkd: from 0 (as kl) to 1 (as reverse-kl)", "B"),
    ("alpha", "slim: the most that the teacher counts beside the text's token", "A"),
    ("top_share", "slim: of the vocabulary, the likeliest tokens that are learned", "SHARE"),
    ("own_share", "gkd: of the steps on texts that the student writes itself", "SHARE"),
    ("teacher_share", "minillm: of the distribution that texts are drawn from", "SHARE"),
    ("feature_weight", "tinybert and other features: their weight beside the logits", "W"),
    ("layer_map", "features: the first or last of the teacher's layers in a layer's place", "MAP"),
    ("kl_weight", "reward: weight of the divergence from the teacher", "W"),
    ("num_answers", "reward: answers to a prompt, compared with each other", "N"),
    ("warm_share", "reward: of the steps, the first ones, on the texts themselves", "SHARE"),
    ("prompt_tokens", "gkd, minillm, reward: the most tokens that a text goes on from", "N"),
    ("new_tokens", "gkd, minillm, reward: the most tokens that it adds", "N"),
)


def _add_method_numbers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("numbers of the methods")
    for name, help_text, placeholder in _NUMBERS:
        default = getattr(_OPTIONS, name)
        group.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=default,
            help=f"{help_text} (default {default})",
            metavar=placeholder,
        )


def _add_reward(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reward",
        default="",
        help="what scores an answer: module:callable, a function of prompt and answer in a module "
        "that Python finds, or an http address, which gets prompts and answers and returns "
        "rewards (docs/guide/distill.md)",
        metavar="REWARD",
    )


def _add_teacher_logits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the teacher's distributions on disk")
    group.add_argument(
        "--teacher-logits",
        type=Path,
        help="read the teacher's distributions from FOLDER, which is written first unless it holds "
        "them; the teacher does not run in training",
        metavar="FOLDER",
    )
    group.add_argument(
        "--keep",
        help="what is kept of each: samples-N draws, the top-K tokens (the others share what is "
        f"left), top-K-renormalized, or whole (default: {DEFAULT_KEEP})",
        metavar="WHAT",
    )


def _add_data(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data",
        type=Path,
        action="append",
        default=[],
        help="UTF-8 text, or JSON lines (.jsonl) with text, prompt and completion, or messages; "
        "also .xz; may be given again (default: from $PAREDOWN_DATA, else sampled from the "
        "teacher)",
        metavar="PATH",
    )
    group.add_argument(
        "--row-tokens",
        type=int,
        default=DEFAULT_ROW_TOKENS,
        help=f"tokens of a row, into which texts are packed (default {DEFAULT_ROW_TOKENS}, at most "
        "the models' context)",
        metavar="N",
    )
    group.add_argument(
        "--held-out",
        type=float,
        default=DEFAULT_HELD_OUT,
        help="share of the texts that is not trained on and judges the student (default "
        f"{DEFAULT_HELD_OUT}; 0: none)",
        metavar="SHARE",
    )
    group.add_argument(
        "--patience",
        type=int,
        default=3,
        help="end after so many looks at the held-out texts, of ten in all, without a better "
        "one (default %(default)s)",
        metavar="N",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    budget = group.add_mutually_exclusive_group()
    budget.add_argument(
        "--tokens",
        type=int,
        help=f"tokens to train on (default {DEFAULT_TOKENS})",
        metavar="N",
    )
    budget.add_argument("--minutes", type=float, help="minutes to train for instead", metavar="M")
    group.add_argument(
        "--learning-rate",
        type=float,
        default=_TRAIN.learning_rate,
        help="the highest one; it falls to a tenth (default %(default)s)",
        metavar="R",
    )
    group.add_argument(
        "--batch-tokens",
        type=int,
        default=_TRAIN.batch_tokens,
        help="tokens of a step (default %(default)s)",
        metavar="N",
    )
    add_train_device_argument(group)
    group.add_argument(
        "--seed", type=int, default=0, help="of the order of the rows (default 0)", metavar="N"
    )
    group.add_argument(
        "--log", type=Path, help="CSV file with a line for each step", metavar="FILE"
    )
    group.add_argument("--plot", type=Path, help="PNG with the losses", metavar="FILE")


def distill_config(args: argparse.Namespace) -> DistillConfig:
    """Returns what the arguments ask for. Raises ConfigError for numbers out of range."""
    tokens = DEFAULT_TOKENS if args.tokens is None and args.minutes is None else args.tokens
    train = TrainConfig(
        num_tokens=tokens,
        minutes=args.minutes,
        learning_rate=args.learning_rate,
        final_learning_rate=args.learning_rate / 10,
        batch_tokens=args.batch_tokens,
        device=args.train_device,
        seed=args.seed,
        log=args.log,
    )
    return DistillConfig(
        train=train,
        student=args.student,
        method=args.method,
        options=MethodOptions(
            reward=args.reward, **{name: getattr(args, name) for name, *_ in _NUMBERS}
        ),
        data=TrainingDataConfig(
            paths=tuple(args.data), row_tokens=args.row_tokens, held_out=args.held_out
        ),
        patience=args.patience,
        teacher_logits=_teacher_logits(args),
    )


def _teacher_logits(args: argparse.Namespace) -> TeacherLogits | None:
    if args.teacher_logits is None:
        if args.keep is not None:
            raise ConfigError(
                "--keep says what is kept of the teacher's distributions, and none are kept",
                seen=args.keep,
                remedy="Give the folder for them (--teacher-logits), or leave out --keep.",
            )
        return None
    return TeacherLogits(folder=args.teacher_logits, keep=args.keep or DEFAULT_KEEP)
