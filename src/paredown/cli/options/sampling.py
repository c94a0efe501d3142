"""Options of the verbs that generate text: sampling parameters, and how the model runs."""

import argparse

from paredown.cli.options.kv_dtype import add_kv_dtype_argument
from paredown.engine.sampling.sampling_params import SamplingParams


def add_sampling_arguments(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    group = parser.add_argument_group("sampling")
    for option, default, metavar, text in (
        ("--max-tokens", max_tokens, "N", "tokens to generate at most"),
        ("--temperature", 0.8, "T", "0 takes the likeliest token"),
        ("--top-k", 40, "K", "draw among the K likeliest tokens; 0 keeps all"),
        ("--top-p", 1.0, "P", "draw among the likeliest tokens that have this share together"),
        ("--min-p", 0.0, "P", "drop tokens below this share of the best token's probability"),
        ("--typical-p", 1.0, "P", "draw among the most typical tokens with this share together"),
        ("--repetition-penalty", 1.0, "R", "divide logits of tokens in prompt and answer by R"),
        ("--presence-penalty", 0.0, "X", "subtract X from logits of tokens in the answer"),
        ("--frequency-penalty", 0.0, "X", "subtract X for each time a token is in the answer"),
        ("--min-tokens", 0, "N", "end the text at no earlier token"),
    ):
        group.add_argument(
            option,
            type=type(default),
            default=default,
            help=f"{text} (default: {default:g})",
            metavar=metavar,
        )
    group.add_argument("--seed", type=int, help="the same seed gives the same text", metavar="N")
    group.add_argument(
        "--stop",
        action="append",
        default=[],
        help="end before this text; may be given again",
        metavar="TEXT",
    )
    group.add_argument(
        "--ignore-eos", action="store_true", help="go on after the end-of-text token"
    )
    add_kv_dtype_argument(parser)


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """Returns the sampling parameters. Raises ParameterError for a value out of range."""
    return SamplingParams(
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        typical_p=args.typical_p,
        repetition_penalty=args.repetition_penalty,
        presence_penalty=args.presence_penalty,
        frequency_penalty=args.frequency_penalty,
        min_tokens=args.min_tokens,
        seed=args.seed,
        stop=tuple(args.stop),
        ignore_eos=args.ignore_eos,
    )
