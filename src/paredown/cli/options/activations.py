"""The option for what linear layers round their inputs to."""

import argparse
from typing import get_args

from paredown.spec.weight import ActivationDType


def add_activations_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--activations",
        choices=get_args(ActivationDType),
        help="what linear layers round their inputs to (docs/methods/activations.md): int16_group "
        "loses next to nothing and decodes nearly as fast as int8_group, bf16 is W4A16 as others "
        "compute it (default: as the folder asks, else as the formats say, int8 for integer "
        "weights)",
    )
