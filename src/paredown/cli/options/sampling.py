"""Options of the verbs that generate text: sampling parameters, and how the model runs."""

import argparse

from paredown.cli.options.kv_dtype import add_kv_dtype_argument
from paredown.engine.sampling.sampling_params import SamplingParams


def add_sampling_arguments(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--max-tokens", type=int, default=max_tokens, help=f"default: {max_tokens}", metavar="N"
    )
    group.add_argument(
        "--temperature", type=float, default=0.8, help="0 is greedy (default: 0.8)", metavar="T"
    )
    group.add_argument(
        "--top-k", type=int, default=40, help="0 keeps every token (default: 40)", metavar="K"
    )
    group.add_argument("--top-p", type=float, default=1.0, help="default: 1", metavar="P")
    group.add_argument(
        "--min-p",
        type=float,
        default=0.0,
        help="share of the best token's (default: 0)",
        metavar="P",
    )
    group.add_argument("--typical-p", type=float, default=1.0, help="default: 1", metavar="P")
    group.add_argument(
        "--repetition-penalty", type=float, default=1.0, help="default: 1 (none)", metavar="R"
    )
    group.add_argument(
        "--presence-penalty", type=float, default=0.0, help="default: 0", metavar="X"
    )
    group.add_argument(
        "--frequency-penalty", type=float, default=0.0, help="default: 0", metavar="X"
    )
    group.add_argument(
        "--min-tokens", type=int, default=0, help="nothing ends the text before", metavar="N"
    )
    group.add_argument("--seed", type=int, help="same seed, same text", metavar="N")
    group.add_argument(
        "--stop", action="append", default=[], help="end before this text; repeatable"
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
