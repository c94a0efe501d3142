"""The options of verbs that prune: where to end, and how long to recover."""

import argparse

from paredown.compress.changed_recipe import (
    with_max_kl,
    with_max_loss,
    with_min_cosine,
    with_recovery,
)
from paredown.compress.recipe import Recipe
from paredown.compress.steps import RecoverStep


def add_removal_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a recipe that removes something."""
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument(
        "--max-loss",
        type=float,
        help="end pruning where the predicted loss (the sum of OBS's saliencies) reaches this; "
        "the recipe's share is the most that goes",
        metavar="E",
    )
    limit.add_argument(
        "--max-kl",
        type=float,
        help="end pruning where the KL divergence to the original, measured on held-out text, "
        "reaches this (nats per token); several shares are tried",
        metavar="E",
    )
    limit.add_argument(
        "--min-cosine",
        type=float,
        help="for encoders: end pruning where the least cosine of a text's vector to the "
        "original's, measured on held-out texts, falls to this; several shares are tried",
        metavar="C",
    )
    add_recovery_arguments(parser)


def add_recovery_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "recovery", "Trains what was pruned against the original; needs torch and time."
    )
    budget = group.add_mutually_exclusive_group()
    budget.add_argument(
        "--recover-tokens", type=int, help="for as many tokens of text", metavar="N"
    )
    budget.add_argument("--recover-minutes", type=float, help="for as many minutes", metavar="M")


def recover_step(args: argparse.Namespace) -> RecoverStep | None:
    """Returns what the options ask for, None without any. Raises ConfigError."""
    if args.recover_tokens is None and args.recover_minutes is None:
        return None
    return RecoverStep(num_tokens=args.recover_tokens, minutes=args.recover_minutes)


def with_removal_arguments(recipe: Recipe, args: argparse.Namespace) -> Recipe:
    """Returns the recipe with what the options ask for. Raises ConfigError."""
    if args.max_loss is not None:
        recipe = with_max_loss(recipe, args.max_loss)
    if args.max_kl is not None:
        recipe = with_max_kl(recipe, args.max_kl)
    if args.min_cosine is not None:
        recipe = with_min_cosine(recipe, args.min_cosine)
    step = recover_step(args)
    return recipe if step is None else with_recovery(recipe, step)
