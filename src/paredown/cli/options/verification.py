"""The options that say what a new checkpoint is measured on."""

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
    """The verification that the arguments ask for; None where none is wanted."""
    if args.no_verify:
        return None
    return VerifyConfig(text=args.text, num_tokens=args.tokens)
