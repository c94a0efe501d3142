"""Measures the cost of the thread pool: parallel regions, steps beside a busy process, idling.

    python benchmarks/threads.py [--threads 2] [--json]

region_us     microseconds of a parallel region, empty and with some microseconds of work in every
              share; what a region adds is the difference from one thread
step_us       one decode step of the built-in model, alone and beside one busy process per core;
              free: the system places the helpers; pinned: each has a core of its own
idle_cpu      processor time used per second while nothing is asked
late_ms       how late a Python thread wakes from a sleep of 1 ms while steps run

Ways of placing threads alternate in short rounds; figures are medians over the rounds, with the
lowest and the highest.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from paredown.executors.load import load_executor
from paredown.executors.protocol import LoadedExecutor, SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import default_num_threads, num_cores
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model

NUM_ROUNDS = 9
NUM_REGIONS = 5000
# Floating-point operations of a share: none, or up to some microseconds of a core.
WORK = (0, 100_000, 1_000_000)
NUM_STEPS = 200
IDLE_S = 2.0
HELPER_PREFIX = "paredown-"

Found = dict[str, dict[str, float]]


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def region_us(threads: int) -> Found:
    isa = chosen_isa()
    times: dict[str, list[float]] = {}
    for _ in range(NUM_ROUNDS):
        for work in WORK:
            for count in sorted({1, threads}):
                seconds = _core.measure_region(
                    isa, count, NUM_REGIONS // (1 + work // 100_000), work
                )
                times.setdefault(f"{work} operations, {count} threads", []).append(seconds * 1e6)
    return {name: summary(values) for name, values in times.items()}


def helpers() -> list[int]:
    """Returns the task ids of the pool's helper threads."""
    tasks = Path("/proc/self/task")
    return sorted(
        int(task.name)
        for task in tasks.iterdir()
        if (task / "comm").read_text().startswith(HELPER_PREFIX)
    )


def place(pinned: bool) -> None:
    """Pins helper t to the t-th core, leaving the first to the caller; or lets all use every
    core."""
    cores = sorted(os.sched_getaffinity(0))
    for number, task in enumerate(helpers(), start=1):
        os.sched_setaffinity(task, {cores[number % len(cores)]} if pinned else cores)


def decode_us(executor: LoadedExecutor) -> float:
    """Returns the mean microseconds of a step at a medium context."""
    pages = list(range(16))
    start = time.perf_counter()
    for step in range(NUM_STEPS):
        position = 32 + step
        executor.step([SequenceSlice(token_ids=[1], start=position, pages=pages, num_logits=1)])
    return (time.perf_counter() - start) / NUM_STEPS * 1e6


def neighbours(stack: ExitStack) -> None:
    """Runs a busy process per core until the stack closes."""
    for _ in range(num_cores()):
        process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        stack.callback(process.kill)


def step_us(executor: LoadedExecutor) -> Found:
    times: dict[str, list[float]] = {}
    for beside in ("alone", "beside neighbours"):
        with ExitStack() as stack:
            if beside != "alone":
                neighbours(stack)
            for _ in range(NUM_ROUNDS):
                for pinned in (False, True):
                    place(pinned)
                    name = f"{beside}, {'pinned' if pinned else 'free'}"
                    times.setdefault(name, []).append(decode_us(executor))
    place(False)
    return {name: summary(values) for name, values in times.items()}


def idle_cpu(executor: LoadedExecutor) -> dict[str, float]:
    """Returns the processor seconds per second after the last step."""
    found = []
    for _ in range(3):
        decode_us(executor)
        used = time.process_time()
        time.sleep(IDLE_S)
        found.append((time.process_time() - used) / IDLE_S)
    return summary(found)


def late_ms(executor: LoadedExecutor) -> dict[str, float]:
    """Measures how late this thread wakes while another computes."""
    stopping = threading.Event()

    def compute() -> None:
        while not stopping.is_set():
            decode_us(executor)

    worker = threading.Thread(target=compute)
    worker.start()
    late = []
    try:
        for _ in range(1000):
            start = time.perf_counter()
            time.sleep(0.001)
            late.append((time.perf_counter() - start - 0.001) * 1e3)
    finally:
        stopping.set()
        worker.join()
    return summary(late) | {"99th percentile": statistics.quantiles(late, n=100)[98]}


def show(title: str, found: Found) -> None:
    print(title)
    for name, row in found.items():
        print(f"  {name:>32}: " + ", ".join(f"{key} {value:.3f}" for key, value in row.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=default_num_threads())
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = {"region_us": region_us(args.threads)}
    checkpoint = Checkpoint.open(resolve_model(None))
    executor = load_executor(
        checkpoint, RunOptions(num_pages=16, threads=ThreadPlan.resolve(args.threads))
    )
    found["step_us"] = step_us(executor)
    found["idle"] = {"idle_cpu": idle_cpu(executor), "late_ms": late_ms(executor)}
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{chosen_isa()}, {args.threads} threads, {num_cores()} cores, {NUM_ROUNDS} rounds")
    for title, rows in found.items():
        show(title, rows)


if __name__ == "__main__":
    main()
