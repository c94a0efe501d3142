"""Options of the verbs that generate text: sampling parameters, and how the model runs."""

import argparse
from collections.abc import Mapping
from typing import Any

from paredown.cli.options.kv_dtype import add_kv_dtype_argument
from paredown.cli.options.structure import add_structure_arguments, answer_grammar
from paredown.engine.sampling.field_rules import ParameterError
from paredown.engine.sampling.sampling_defaults import SamplingDefaults
from paredown.engine.sampling.sampling_params import SamplingParams

# What holds at a terminal where neither the user nor the model says otherwise.
OWN_DEFAULTS: Mapping[str, float | int] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
}


def add_sampling_arguments(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    group = parser.add_argument_group("sampling")
    for option, metavar, text in (
        ("--temperature", "T", "0 takes the likeliest token"),
        ("--top-k", "K", "draw among the K likeliest tokens; 0 keeps all"),
        ("--top-p", "P", "draw among the likeliest tokens that have this share together"),
        ("--min-p", "P", "drop tokens below this share of the best token's probability"),
        ("--typical-p", "P", "draw among the most typical tokens with this share together"),
        ("--repetition-penalty", "R", "divide logits of tokens in prompt and answer by R"),
    ):
        own = OWN_DEFAULTS[option.removeprefix("--").replace("-", "_")]
        group.add_argument(
            option,
            type=type(own),
            help=f"{text} (default: the model's own, else {own:g})",
            metavar=metavar,
        )
    for option, default, metavar, text in (
        ("--max-tokens", max_tokens, "N", "tokens to generate at most"),
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
    add_structure_arguments(parser)
    add_kv_dtype_argument(parser)


def sampling_params(
    args: argparse.Namespace, defaults: SamplingDefaults | None = None
) -> SamplingParams:
    """Returns the sampling parameters; `defaults` are the model's. Raises ParameterError for a
    value out of range, and what `answer_grammar` raises."""
    if args.max_tokens < 1:
        raise ParameterError("max_tokens", seen=args.max_tokens, remedy="Use 1 or more.")
    of_model = {} if defaults is None else defaults.of_draws
    given = {name: one for name in OWN_DEFAULTS if (one := getattr(args, name)) is not None}
    drawn: dict[str, Any] = {**OWN_DEFAULTS, **of_model, **given}
    return SamplingParams(
        max_tokens=args.max_tokens,
        **drawn,
        presence_penalty=args.presence_penalty,
        frequency_penalty=args.frequency_penalty,
        min_tokens=args.min_tokens,
        seed=args.seed,
        stop=tuple(args.stop),
        ignore_eos=args.ignore_eos,
        grammar=answer_grammar(args),
    )
