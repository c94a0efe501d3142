"""The process as PyTorch sees it: its threads, and what the last bits of sums depend on."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from paredown.kernels.probe import processor_name
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.device import Device


def torch_arithmetic(device: Device, threads: ThreadPlan) -> dict[str, str]:
    """Returns PyTorch's build and the device that it runs on. Its libraries do not promise the same
    order of sums for other numbers of CPU threads."""
    if device == "cuda":
        return {
            "executor": "torch",
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "processor": torch.cuda.get_device_name(),
        }
    return {
        "executor": "torch",
        "torch": torch.__version__,
        "isa": torch.backends.cpu.get_cpu_capability(),
        "processor": processor_name(),
        "threads": f"{threads.prefill}, {threads.decode}",
    }


@contextmanager
def on_threads(num_threads: int) -> Iterator[None]:
    """Gives PyTorch that many threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
