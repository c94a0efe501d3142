"""The options of an encoder, which keeps no keys and values and draws no tokens."""

import argparse
from typing import get_args

from paredown.engine.encode.encoder_model import Task
from paredown.errors import ConfigError
from paredown.executors.cache_config import CacheConfig
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan

# Options of models that generate, which are None unless they are given.
_GENERATION = (
    "attention_sinks",
    "attention_window",
    "decode_threads",
    "kv_dtype",
    "kv_memory",
    "pages",
    "speculate",
    "target_itl_ms",
)


def add_task_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--task",
        choices=get_args(Task),
        default="auto",
        help="what the model is for; auto: as its files say (default: %(default)s)",
    )


def encoder_run_options(args: argparse.Namespace) -> RunOptions:
    """Returns how the arguments want an encoder to be run. Raises ConfigError for options that only
    models that generate have."""
    for name in _GENERATION:
        value = getattr(args, name, None)
        if value is not None:
            raise ConfigError(
                "an encoder does not generate, and has no such option",
                seen=f"--{name.replace('_', '-')} {value}",
                remedy="Leave the option out.",
            )
    return RunOptions(
        executor=args.executor,
        device=args.device,
        threads=ThreadPlan.resolve(args.threads),
        activations=args.activations,
        cache=CacheConfig.from_environment(),
    )
