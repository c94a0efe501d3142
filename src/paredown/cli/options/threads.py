"""The options that say how many threads run a model, for the verbs that generate."""

import argparse

from paredown.kernels.thread_plan import MAX_DECODE_TOKENS


def add_threads_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, help="default: all cores", metavar="N")
    parser.add_argument(
        "--decode-threads",
        type=int,
        help=f"for steps of at most {MAX_DECODE_TOKENS} tokens; changes no answer (default: as "
        "--threads)",
        metavar="N",
    )
