"""The option that says how keys and values are kept, for the verbs that run a model."""

import argparse

from paredown.spec.kv import KV_DTYPES


def add_kv_dtype_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kv-dtype",
        choices=KV_DTYPES,
        help="how keys and values are kept; int8 takes half the memory of bf16, so twice the "
        "tokens fit, int4 a quarter at some loss (default: as the checkpoint says, else bf16)",
    )
