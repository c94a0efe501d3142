"""The option of verbs that round weights to treat a quantized model as the original."""

import argparse

from paredown.jobs.float_source import FromQuantized


def add_quantized_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --from-quantized."""
    parser.add_argument(
        "--from-quantized",
        action="store_true",
        help="take MODEL for the original though it is quantized (a Q4_K_M file), as the proof "
        "then says",
    )


def named_model(args: argparse.Namespace) -> str | FromQuantized | None:
    """Returns MODEL, wrapped if --from-quantized is given."""
    return FromQuantized(model=args.model) if args.from_quantized else args.model
