"""The options for how a model is run, for the verbs that answer."""

import argparse
from typing import get_args

from paredown.cli.options.activations import add_activations_argument
from paredown.cli.options.attention_sinks import attention_sinks
from paredown.executors.cache_config import CacheConfig
from paredown.executors.run_options import ExecutorChoice, RunKeywords, RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.device import Device


def add_executor_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("executor (docs/internals/executors.md)")
    group.add_argument(
        "--executor",
        choices=get_args(ExecutorChoice),
        default=RunOptions.executor,
        help="who computes; auto: native on a CPU, torch on a GPU (default: %(default)s)",
    )
    group.add_argument(
        "--device",
        choices=get_args(Device),
        default=RunOptions.device,
        help="where it runs (default: %(default)s)",
    )
    add_activations_argument(group)


def run_keywords(args: argparse.Namespace) -> RunKeywords:
    """Returns the fields of RunOptions that the arguments give. Raises ConfigError."""
    keywords = RunKeywords(
        executor=args.executor,
        device=args.device,
        threads=ThreadPlan.resolve(args.threads, args.decode_threads),
        kv_dtype=args.kv_dtype,
        activations=args.activations,
        cache=CacheConfig.from_environment(),
    )
    if hasattr(args, "attention_sinks"):
        keywords["sinks"] = attention_sinks(args)
    return keywords
