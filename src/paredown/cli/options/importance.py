"""The options for the importance that fits GGUF's K-quants."""

import argparse
from pathlib import Path

from paredown.cli.options.calibration import calibration_config
from paredown.compress.convert.convert import takes_importance
from paredown.errors import ConfigError
from paredown.jobs.importance import ImportanceConfig


def add_importance_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("importance of columns (gguf-q4_k_m and its kin)")
    group.add_argument(
        "--importance",
        metavar="auto|none|FILE",
        help="auto (the default) passes the calibration text through the model; FILE is "
        "llama.cpp's imatrix, .gguf or .dat; none counts all columns alike",
    )
    group.add_argument(
        "--save-importance", type=Path, metavar="FILE", help="write it as llama.cpp's imatrix"
    )


def read_importance_config(args: argparse.Namespace) -> ImportanceConfig:
    """Returns the importance that the arguments ask for, by default "auto". Raises ConfigError
    where the target takes none."""
    for option, value in (
        ("--importance", args.importance),
        ("--save-importance", args.save_importance),
    ):
        if value is not None and not takes_importance(args.to):
            raise ConfigError(
                f"{option} is for the K-quants of GGUF",
                seen=f"{value} with --to {args.to}",
                remedy=f"Leave {option} out, or take --to gguf-q4_k_m or its kin.",
            )
    calibration, save = calibration_config(args), args.save_importance
    if args.importance in (None, "auto"):
        return ImportanceConfig(calibration=calibration, save=save)
    source = None if args.importance == "none" else Path(args.importance)
    return ImportanceConfig(source=source, calibration=calibration, save=save)
