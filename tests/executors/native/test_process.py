"""The process around the core: which cores it may use, what else computes in it, who forks it."""

import os
import subprocess
import sys

import pytest

# Enough for a machine that is busy; what hangs takes longer than that.
TIMEOUT_S = 240
PROLOGUE = """
import os, re, sys
from paredown import LLM, SamplingParams
def text(llm):
    params = SamplingParams(max_tokens=8, temperature=0)
    return llm.generate("Once upon a time", params)[0].text
"""


def run(code: str) -> list[str]:
    """Lines that the code prints in a process of its own, which ends well and complains of
    nothing."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert "nanobind" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def test_threads_stay_on_the_cores_that_the_process_may_use() -> None:
    """One core, the last one: core 0 is not among them where there are two."""
    core = max(os.sched_getaffinity(0))
    lines = run(
        f"import os; os.sched_setaffinity(0, {{{core}}})\n{PROLOGUE}"
        "from paredown.kernels.probe import default_num_threads\n"
        "llm = LLM(num_threads=2); text(llm)\n"
        "tasks = os.listdir('/proc/self/task')\n"
        "masks = {tuple(os.sched_getaffinity(int(task))) for task in tasks}\n"
        "print(default_num_threads(), len(tasks) > 1, masks)"
    )
    assert lines == [f"1 True {{({core},)}}"]


@pytest.mark.parametrize("order", ["import torch\n{0}", "{0}\nimport torch"])
def test_beside_torch_each_keeps_its_own_threads(order: str) -> None:
    """The core brings no OpenMP runtime of its own and leaves torch's number of threads alone."""
    code = order.format(PROLOGUE) + (
        "\ntorch.set_num_threads(2)\n"
        "print(repr(text(LLM(num_threads=2))))\n"
        "assert torch.ones(64, 64).matmul(torch.ones(64, 64))[0, 0] == 64\n"
        "maps = open('/proc/self/maps').read()\n"
        "runtimes = {name for name in re.findall(r'\\S*lib[gi]?omp\\S*', maps)}\n"
        "assert all('torch' in name for name in runtimes), runtimes\n"
        "print(torch.get_num_threads())"
    )
    alone = run(f"{PROLOGUE}print(repr(text(LLM(num_threads=2))))")
    assert run(code) == [*alone, "2"]


def test_a_child_after_a_fork_answers_and_ends() -> None:
    """It has none of the threads; the one that it has computes all shares."""
    lines = run(
        f"{PROLOGUE}llm = LLM(num_threads=2)\nprint(repr(text(llm)), flush=True)\n"
        "if os.fork() == 0:\n"
        "    print(repr(text(llm)), flush=True)\n"
        "    del llm\n"
        "    sys.exit(0)\n"
        "sys.exit(os.wait()[1])"
    )
    assert len(lines) == 2
    assert lines[0] == lines[1]
