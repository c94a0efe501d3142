"""The options that say what a server's answers hold when a request does not."""

import argparse
from pathlib import Path

from paredown.cli.options.kv_pages import byte_count
from paredown.cli.printed import tell
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.models.generation_config import read_sampling_settings
from paredown.serve.answers.response_cache import ResponseCache


def add_answer_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answers")
    group.add_argument(
        "--generation-config",
        choices=("model", "none"),
        default="model",
        help="whether temperature, top_k and so on of the model's generation_config.json hold for "
        "requests that give none (default: model)",
    )
    group.add_argument(
        "--timings",
        action="store_true",
        help="give the times of queue, prompt and answer with each answer; else with those whose "
        "request has `timings`",
    )
    group.add_argument(
        "--response-cache",
        type=byte_count,
        help="keep answers of requests with temperature 0 or a seed, up to SIZE, and give them to "
        "the same client when it asks the same again (default: none)",
        metavar="SIZE",
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


def response_cache(args: argparse.Namespace) -> ResponseCache | None:
    return None if args.response_cache is None else ResponseCache(args.response_cache)
