"""The scheduling options, for the verbs that serve many requests."""

import argparse
import dataclasses

from paredown.cli.printed import tell
from paredown.engine.schedule.policies.table import POLICY_NAMES
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.step_budget import choose_step_budget
from paredown.executors.protocol import Executor


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scheduling")
    for option, default, text in (
        ("--max-waiting", ScheduleConfig.max_waiting, "requests that may wait; others get 429"),
        ("--max-running", ScheduleConfig.max_running, "requests computed together"),
    ):
        group.add_argument(
            option, type=int, default=default, help=f"{text} (default: {default})", metavar="N"
        )
    budget = group.add_mutually_exclusive_group()
    default = ScheduleConfig.max_step_tokens
    budget.add_argument(
        "--max-step-tokens",
        type=int,
        default=default,
        help=f"tokens computed in one step (default: {default})",
        metavar="N",
    )
    budget.add_argument(
        "--target-itl-ms",
        type=float,
        help="target time between tokens while prompts are computed: steps are timed at start, "
        "and the largest step that stays within MS is used",
        metavar="MS",
    )
    group.add_argument(
        "--policy",
        choices=POLICY_NAMES,
        default=ScheduleConfig.policy,
        help=f"which waiting request starts next (default: {ScheduleConfig.policy})",
    )
    group.add_argument(
        "--fair-shares",
        action="store_true",
        help="give every tenant (the field `user`) the same share, however much each asks for",
    )
    group.add_argument(
        "--no-prefix-cache", action="store_true", help="compute every prompt from its start"
    )


def schedule_config(args: argparse.Namespace) -> ScheduleConfig:
    """Returns the schedule. Raises ConfigError."""
    return ScheduleConfig(
        max_step_tokens=args.max_step_tokens,
        max_running=args.max_running,
        max_waiting=args.max_waiting,
        policy=args.policy,
        fair_shares=args.fair_shares,
        prefix_cache=not args.no_prefix_cache,
    )


def keeping_target(
    args: argparse.Namespace, config: ScheduleConfig, executor: Executor
) -> ScheduleConfig:
    """Returns the config with the step budget for the latency target, measured now on the idle
    executor. Prints the budget and how it was chosen."""
    if args.target_itl_ms is None:
        tell(step_budget_line(config))
        return config
    budget = choose_step_budget(executor, args.target_itl_ms / 1e3)
    tell(budget.arithmetic())
    config = dataclasses.replace(config, max_step_tokens=budget.max_step_tokens)
    tell(step_budget_line(config, "measured for --target-itl-ms"))
    return config


def step_budget_line(config: ScheduleConfig, chosen: str | None = None) -> str:
    """Returns one line: the budget, how it was chosen, and how many requests can run in it."""
    if chosen is None:
        is_default = config.max_step_tokens == ScheduleConfig.max_step_tokens
        chosen = "default" if is_default else "--max-step-tokens"
    cut = "" if config.num_places == config.max_running else f", not {config.max_running}"
    return (
        f"step budget: {config.max_step_tokens} tokens ({chosen}); at most {config.num_places} "
        f"requests run together{cut}"
    )
