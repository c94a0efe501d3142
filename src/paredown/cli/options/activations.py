"""The option that says what linear layers round their inputs to."""

import argparse
from typing import get_args

from paredown.spec.weight import ActivationDType


def add_activations_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--activations",
        choices=get_args(ActivationDType),
        help="what linear layers round their inputs to; bf16 is W4A16 for weights of four bits "
        "(docs/linear.md; default: as their formats say, int8 for integer weights)",
    )
