"""The options that say by which names a served model is asked for."""

import argparse

from paredown.serve.other_names import OtherNames


def add_names_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", help="the model's name in the API (default: its folder's)")
    parser.add_argument(
        "--alias",
        action="append",
        default=[],
        help="another name that requests may give the model; may be given again",
        metavar="NAME",
    )
    parser.add_argument(
        "--any-model-name",
        action="store_true",
        help="answer requests for a model of any name, for clients that ask for a fixed one",
    )


def other_names(args: argparse.Namespace, own: str) -> OtherNames:
    """Returns the names beside the model's `own`. Raises ConfigError."""
    return OtherNames.of(own, args.alias, any_name=args.any_model_name)
