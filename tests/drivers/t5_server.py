"""Runs a real server over a tiny random T5 on the native core."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drivers.running_server import NUM_PAGES, Running, running_server
from fakes.t5_tokenizer import write_t5_tokenizer
from fakes.tiny_t5 import VOCAB_SIZE, make_t5, write_t5
from paredown.engine.engine import Engine
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer


def write_t5_folder(folder: Path) -> None:
    """Writes a random T5 with its tokenizer."""
    write_t5(make_t5("gated-untied"), folder)
    write_t5_tokenizer(folder, VOCAB_SIZE)


@contextmanager
def t5_server(folder: Path, *, delay_s: float = 0.0, **options: Any) -> Iterator[Running]:
    """Runs the server inside the block. Each step takes `delay_s` longer than it needs to."""
    wanted = RunOptions(num_pages=NUM_PAGES, threads=ThreadPlan.resolve(1), activations="fp32")
    executor = load_executor(Checkpoint.open(folder), wanted)
    tokenizer = Tokenizer.open(folder)

    def load(engine: Engine) -> Engine:
        step = engine.step

        def slow_step() -> Any:
            time.sleep(delay_s)
            return step()

        if delay_s:
            engine.step = slow_step
        return engine

    with running_server(
        executor=executor, tokenizer=tokenizer, load=load, is_encoder_decoder=True, **options
    ) as server:
        yield server
