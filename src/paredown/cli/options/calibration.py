"""The options of verbs that calibrate."""

import argparse
from pathlib import Path

from paredown.evaluate.texts.calibration_text import (
    DEFAULT_SAMPLES,
    DEFAULT_TOKENS,
    CalibrationConfig,
)


def add_calibration_arguments(
    parser: argparse.ArgumentParser, num_samples: int = DEFAULT_SAMPLES
) -> None:
    group = parser.add_argument_group("calibration (recipes that look at a text)")
    group.add_argument(
        "--calibration-text",
        type=Path,
        help="UTF-8 text, also .xz (default: from $PAREDOWN_DATA, else sampled from the model)",
        metavar="FILE",
    )
    group.add_argument(
        "--samples",
        type=int,
        default=num_samples,
        help=f"windows of text (default {num_samples})",
        metavar="N",
    )
    group.add_argument(
        "--calibration-tokens",
        type=int,
        default=DEFAULT_TOKENS,
        help=f"tokens of a window (default {DEFAULT_TOKENS}, at most the model's context)",
        metavar="N",
    )
    group.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed that draws where windows begin (default 0)",
        metavar="N",
    )


def calibration_config(args: argparse.Namespace) -> CalibrationConfig:
    return CalibrationConfig(
        text=args.calibration_text,
        num_samples=args.samples,
        num_tokens=args.calibration_tokens,
        seed=args.seed,
    )
