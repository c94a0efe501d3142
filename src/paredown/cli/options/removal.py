"""The options of verbs that prune: where to end, and how long to recover."""

import argparse

from paredown.compress.changed_recipe import with_max_loss, with_recovery
from paredown.compress.recipe import Recipe
from paredown.compress.steps import RecoverStep


def add_removal_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pruning (recipes that remove something)")
    group.add_argument(
        "--max-loss",
        type=float,
        help="end where the predicted loss (the sum of OBS's saliencies) reaches this; the "
        "recipe's share is the most that goes",
        metavar="E",
    )
    budget = group.add_mutually_exclusive_group()
    budget.add_argument(
        "--recover-tokens",
        type=int,
        help="then train against the original for as many tokens (needs torch)",
        metavar="N",
    )
    budget.add_argument(
        "--recover-minutes",
        type=float,
        help="or for as many minutes",
        metavar="M",
    )


def with_removal_arguments(recipe: Recipe, args: argparse.Namespace) -> Recipe:
    """Returns the recipe with what the options ask for. Raises ConfigError."""
    if args.max_loss is not None:
        recipe = with_max_loss(recipe, args.max_loss)
    if args.recover_tokens is not None or args.recover_minutes is not None:
        step = RecoverStep(num_tokens=args.recover_tokens, minutes=args.recover_minutes)
        recipe = with_recovery(recipe, step)
    return recipe
