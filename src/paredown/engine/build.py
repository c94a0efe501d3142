"""Builds an engine from a checkpoint. Everything that generates uses this one function."""

from collections.abc import Callable
from dataclasses import dataclass

from paredown.engine.engine import Engine
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.executors.load import start_loading
from paredown.executors.protocol import Executor, LoadedExecutor
from paredown.executors.run_options import RunOptions
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer

OnLoaded = Callable[[LoadedExecutor], ScheduleConfig | None]


@dataclass(frozen=True, kw_only=True)
class Built:
    """An engine and its parts."""

    engine: Engine
    executor: LoadedExecutor
    tokenizer: Tokenizer


def build(
    checkpoint: Checkpoint,
    options: RunOptions,
    *,
    tokenizer: Tokenizer | None = None,
    schedule: ScheduleConfig | None = None,
    speculation: SpeculationConfig | None = None,
    on_loaded: OnLoaded | None = None,
) -> Built:
    """Loads the checkpoint and puts an engine over it. `tokenizer` None opens the checkpoint's own.

    `on_loaded` is called as soon as the weights are loaded. It may check or report them, or return
    a schedule that fits the measured step times and replaces `schedule`. Raises what
    `load_executor` and `make_speculator` raise.
    """
    loading = start_loading(checkpoint, options)
    if tokenizer is None:
        tokenizer = Tokenizer.open(checkpoint.path)
    executor = loading.finish()
    if on_loaded is not None:
        chosen = on_loaded(executor)
        schedule = schedule if chosen is None else chosen
    engine = assemble(executor, tokenizer, options, schedule=schedule, speculation=speculation)
    return Built(engine=engine, executor=executor, tokenizer=tokenizer)


def assemble(
    executor: Executor,
    tokenizer: Tokenizer,
    options: RunOptions,
    *,
    schedule: ScheduleConfig | None = None,
    speculation: SpeculationConfig | None = None,
) -> Engine:
    """Builds an engine over a loaded executor. A draft model also runs with `options`."""
    speculator = None
    if speculation is not None:
        # Imported here because the import takes 30 ms and few runs speculate.
        from paredown.engine.speculate.make_speculator import make_speculator

        speculator = make_speculator(speculation, executor, tokenizer, options)
    return Engine(
        executor, tokenizer, schedule, speculator, num_mask_threads=options.thread_plan.most
    )
