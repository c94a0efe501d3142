"""Paredown's engine, whole: scheduler, pages, prefix cache, greedy sampling, detokenization."""

import time
from pathlib import Path

from benchmarks.checkpoints.cache import Variant, paredown_folder
from benchmarks.peers.offline import Job
from benchmarks.peers.peer import LoadOptions
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.text.tokenizer import Tokenizer
from paredown.spec.kv import PAGE_SIZE


class OfflineParedown:
    """Implements OfflinePeer. Nothing is tried: it runs with its defaults."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._settings: dict[str, str] = {}

    def load(self, root: Path, variant: Variant, options: LoadOptions, trial: list[Job]) -> None:
        folder = paredown_folder(root, variant)
        config = ScheduleConfig()
        # All of them at their longest, like the rival's slots.
        num_sequences = min(config.max_running, options.num_sequences)
        num_pages = num_sequences * -(-options.num_tokens // PAGE_SIZE)
        executor = load_executor(
            Checkpoint.open(folder),
            RunOptions(
                num_pages=num_pages,
                threads=ThreadPlan.resolve(options.num_threads),
                kv_dtype=options.kv_dtype,
            ),
        )
        self._engine = Engine(executor, Tokenizer.open(folder), config)
        self._settings = {
            "isa": executor.arithmetic["isa"],
            "requests at once": str(config.max_running),
            "tokens in a step": str(config.max_step_tokens),
            "KV pages": str(num_pages),
        }
        self.answer(trial)

    def answer(self, jobs: list[Job]) -> float:
        engine = self._engine
        assert engine is not None, "no model is loaded"
        start_s = time.perf_counter()
        requests = [
            engine.submit(
                prompt, SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
            )
            for prompt, num_tokens in jobs
        ]
        while engine.has_work:
            engine.step()
        seconds = time.perf_counter() - start_s
        found = [one.num_generated_tokens for one in requests]
        assert found == [num_tokens for _, num_tokens in jobs]
        return seconds

    def settings(self) -> dict[str, str]:
        return self._settings

    def close(self) -> None:
        self._engine = None
