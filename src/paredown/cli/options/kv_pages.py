"""The options for the memory of keys and values, for the verbs that hold many."""

import argparse

from paredown.executors.page_memory import pages_in
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv_choice import resolve_kv_choice
from paredown.units import parse_bytes


def add_kv_pages_arguments(
    parser: argparse.ArgumentParser, default: str = "from the free memory"
) -> None:
    """`default` says what the number of pages is where neither option is given."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--pages", type=int, help=f"key-value pages of 16 tokens (default: {default})", metavar="N"
    )
    group.add_argument(
        "--kv-memory",
        type=byte_count,
        help="memory for key-value pages: 2GB, 512MiB, or a number of bytes",
        metavar="BYTES",
    )


def num_pages(args: argparse.Namespace, checkpoint: Checkpoint) -> int | None:
    """Returns the pages that the arguments ask for; None uses the free memory. Raises CapacityError
    for memory that holds no page."""
    if args.kv_memory is None:
        pages: int | None = args.pages
        return pages
    choice = checkpoint.kv_dtype if args.kv_dtype is None else args.kv_dtype
    kv_dtype = resolve_kv_choice(choice, checkpoint.spec.num_layers)
    return pages_in(args.kv_memory, checkpoint.spec, kv_dtype)


def byte_count(text: str) -> int:
    """Parses a number of bytes for argparse."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write 2GB, 512MiB, or 800000000") from error
