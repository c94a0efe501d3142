"""The options of attention sinks, for the verbs that answer."""

import argparse

from paredown.errors import ConfigError
from paredown.spec.attention_sinks import AttentionSinks


def add_attention_sinks_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("texts without end (docs/internals/streaming.md)")
    group.add_argument(
        "--attention-sinks",
        type=int,
        help="let every token see only the first N tokens and a window of the last ones: texts may "
        "be of any length, in memory that does not grow; 4 is the paper's number",
        metavar="N",
    )
    group.add_argument(
        "--attention-window",
        type=int,
        help=f"tokens of that window (default: {AttentionSinks.window})",
        metavar="N",
    )


def attention_sinks(args: argparse.Namespace) -> AttentionSinks | None:
    """Returns the sinks that the arguments ask for, or None. Raises ConfigError."""
    if args.attention_sinks is None:
        if args.attention_window is not None:
            raise ConfigError(
                "a window was given without attention sinks",
                seen=f"--attention-window {args.attention_window}",
                remedy="Add --attention-sinks 4.",
            )
        return None
    window = AttentionSinks.window if args.attention_window is None else args.attention_window
    return AttentionSinks(num_sink_tokens=args.attention_sinks, window=window)
