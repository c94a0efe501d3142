"""The options of verbs whose recipes train codes: for how long."""

import argparse
from typing import get_args

from paredown.compress.changed_recipe import with_train_device, with_training_budget
from paredown.compress.recipe import Recipe
from paredown.compress.steps import DEFAULT_TRAIN_TOKENS
from paredown.spec.device import Device


def add_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the budget of a recipe that trains."""
    group = parser.add_argument_group(
        "training of codes",
        "How long a recipe trains its codes or scales (qad-int3-g64, gptq-int3-g64-scales); "
        f"{DEFAULT_TRAIN_TOKENS:,} tokens unless given. It needs torch and time.",
    )
    budget = group.add_mutually_exclusive_group()
    budget.add_argument("--train-tokens", type=int, help="for as many tokens of text", metavar="N")
    budget.add_argument("--train-minutes", type=float, help="for as many minutes", metavar="M")
    add_train_device_argument(group)


def add_train_device_argument(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--train-device",
        choices=get_args(Device),
        default="cpu",
        help="where what is trained is computed; a GPU's bits may differ from run to run "
        "(default: %(default)s)",
    )


def with_training_arguments(recipe: Recipe, args: argparse.Namespace) -> Recipe:
    """Returns the recipe with the budget and the device that the options give. Raises
    ConfigError."""
    if args.train_tokens is not None or args.train_minutes is not None:
        recipe = with_training_budget(recipe, args.train_tokens, args.train_minutes)
    return recipe if args.train_device == "cpu" else with_train_device(recipe, args.train_device)
