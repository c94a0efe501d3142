"""The option for the format of keys and values, for the verbs that run a model."""

import argparse

from paredown.errors import ConfigError
from paredown.spec.kv import KV_DTYPES
from paredown.spec.kv_choice import check_kv_choice


def add_kv_dtype_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kv-dtype",
        type=_choice,
        help=f"how keys and values are kept: {', '.join(KV_DTYPES)}; int8 and fp8 take half the "
        "memory of bf16, so twice the tokens fit, int4 a quarter at some loss; layers may differ: "
        "int4,first2=bf16,last2=bf16 (default: as the checkpoint says, else bf16)",
        metavar="DTYPE",
    )


def _choice(text: str) -> str:
    try:
        check_kv_choice(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
