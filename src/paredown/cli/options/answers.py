"""The options that say what a server's answers hold when a request does not."""

import argparse
from pathlib import Path

from paredown.cli.printed import tell
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.models.generation_config import read_sampling_settings


def add_answer_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answers")
    group.add_argument(
        "--generation-config",
        choices=("model", "none"),
        default="model",
        help="whether temperature, top_k and so on of the model's generation_config.json hold for "
        "requests that give none (default: model)",
    )


def sampling_defaults(args: argparse.Namespace, path: Path) -> SamplingDefaults:
    """Returns the defaults of the model at `path`, and prints them."""
    if args.generation_config == "none":
        return SamplingDefaults()
    defaults, notes = SamplingDefaults.of(read_sampling_settings(path))
    for note in notes:
        tell(f"{path.name}: {note}")
    if told := defaults.told():
        tell(
            f"sampling defaults of the model: {told}; a request's own fields come first "
            "(--generation-config none leaves them out)"
        )
    return defaults
