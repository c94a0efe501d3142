"""The options for how a new checkpoint is measured."""

import argparse
from pathlib import Path

from paredown.jobs.verify_config import DEFAULT_TOKENS, VerifyConfig


def add_verification_arguments(parser: argparse.ArgumentParser, *, prefix: str = "") -> None:
    """Adds --text, --tokens and --no-verify; `prefix` comes before the first two for a verb whose
    own text and tokens are others."""
    group = parser.add_argument_group("verification (docs/guide/verification.md)")
    group.add_argument(
        f"--{prefix}text",
        dest="verify_text",
        type=Path,
        help="UTF-8 text to predict (default: from $PAREDOWN_DATA, else sampled from the model)",
        metavar="FILE",
    )
    group.add_argument(
        f"--{prefix}tokens",
        dest="verify_tokens",
        type=int,
        default=DEFAULT_TOKENS,
        help=f"tokens of the text to predict (default {DEFAULT_TOKENS})",
        metavar="N",
    )
    group.add_argument(
        "--no-verify", action="store_true", help="measure nothing, write no verification.json"
    )


def read_verify_config(args: argparse.Namespace) -> VerifyConfig | None:
    """Returns the verification that the arguments ask for, or None if none is wanted."""
    if args.no_verify:
        return None
    return VerifyConfig(text=args.verify_text, num_tokens=args.verify_tokens)
