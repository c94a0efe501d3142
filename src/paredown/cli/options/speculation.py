"""Options of the verbs that speculate."""

import argparse

from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.stats import SpeculationStats
from paredown.errors import ConfigError

# "reference" is missing because it needs texts, which only Python can give (LLM(speculation=...)).
CHOICES = ("ngram", "suffix", "draft")


def add_speculation_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "speculation", "propose draft tokens and verify them together; no answer changes"
    )
    group.add_argument(
        "--speculate",
        choices=CHOICES,
        help="where draft tokens come from: ngram looks in the text itself, suffix in earlier "
        "answers too, draft asks a draft model",
    )
    group.add_argument(
        "--draft-model",
        help="folder or .gguf file with the model's vocabulary (default: the packaged draft model)",
        metavar="MODEL",
    )
    group.add_argument(
        "--max-draft-tokens",
        type=int,
        help="draft tokens for a step at most (default: by kind)",
        metavar="K",
    )


def speculation_config(args: argparse.Namespace) -> SpeculationConfig | None:
    """Returns the speculation that the arguments ask for, or None without --speculate. Raises
    ConfigError for conflicting options."""
    if args.speculate is None:
        for option in ("draft_model", "max_draft_tokens"):
            if getattr(args, option) is not None:
                name = "--" + option.replace("_", "-")
                raise ConfigError(
                    f"{name} was given without --speculate",
                    seen=getattr(args, option),
                    remedy=f"Add --speculate, or leave {name} out.",
                )
        return None
    return SpeculationConfig(
        kind=args.speculate,
        draft_model=args.draft_model,
        max_draft_tokens=args.max_draft_tokens,
    )


def describe_speculation(stats: SpeculationStats) -> str:
    """Returns one line about what speculation gained."""
    if stats.failure is not None:
        return f"speculation failed and was off from then on: {stats.failure}"
    return (
        f"speculation: {stats.tokens_per_step:.2f} tokens per step, "
        f"{sum(stats.num_accepted)} of {sum(stats.num_proposed)} draft tokens accepted"
    )
