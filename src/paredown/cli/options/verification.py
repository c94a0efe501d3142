"""The options for how a new checkpoint is measured."""

import argparse
from pathlib import Path

from paredown.jobs.verify_config import DEFAULT_TOKENS, VerifyConfig


def add_verification_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("verification (docs/verification.md)")
    group.add_argument("--text", type=Path, help="UTF-8 text to predict")
    group.add_argument(
        "--tokens", type=int, default=DEFAULT_TOKENS, help=f"of the text (default {DEFAULT_TOKENS})"
    )
    group.add_argument(
        "--no-verify", action="store_true", help="measure nothing, write no verification.json"
    )


def read_verify_config(args: argparse.Namespace) -> VerifyConfig | None:
    """Returns the verification that the arguments ask for, or None if none is wanted."""
    if args.no_verify:
        return None
    return VerifyConfig(text=args.text, num_tokens=args.tokens)
