"""Measures this machine's limits with loops in the native core."""

import os
import platform
from pathlib import Path

from paredown.errors import ConfigError
from paredown.kernels import _core
from paredown.kernels.control_group import core_quota, remaining_bytes
from paredown.kernels.isa import chosen_isa
from paredown.spec.machine import Machine
from paredown.units import MEBI

# Several times larger than any last-level cache, so that the probe measures memory.
_MEMORY_PROBE_BYTES = 512 * MEBI
# More threads than cores only help tests; far more are a typing error.
_MAX_THREADS_PER_CORE = 8


def num_cores() -> int:
    """Returns the number of cores this process may run on."""
    return len(os.sched_getaffinity(0))


def default_num_threads() -> int:
    """Returns a thread per core, but no more than the control group gives time for. A step waits
    for its slowest thread, so one that is stopped until the next period (0.1 s) stops all."""
    quota = core_quota()
    cores = num_cores() if quota is None else max(1, min(num_cores(), int(quota)))
    return min(cores, _core.MAX_THREADS)


def resolve_num_threads(requested: int | None) -> int:
    """Returns `requested`, or the default for None. Raises ConfigError outside [1, cores * 8], and
    beyond the core's maximum."""
    if requested is None:
        return default_num_threads()
    cores = num_cores()
    if not 1 <= requested <= min(cores * _MAX_THREADS_PER_CORE, _core.MAX_THREADS):
        raise ConfigError(
            "the number of threads is out of range on this machine",
            seen=f"{requested} threads, {cores} cores",
            remedy=f"Use 1 to {min(cores, _core.MAX_THREADS)}, or leave it out for the default.",
        )
    return requested


def measure_bandwidth(num_threads: int, num_bytes: int = _MEMORY_PROBE_BYTES) -> float:
    """Returns the bytes per second at which all threads read a buffer of `num_bytes` repeatedly,
    the best of several short rounds. A buffer as large as a model's weights gives the limit for
    that model, caches included."""
    return max(_core.measure_bandwidth(chosen_isa(), num_threads, num_bytes))


def measure_peak(num_threads: int, unit: str, isa: str | None = None) -> float:
    """Returns the operations per second of `unit` ("int8", "bf16", "fp32") in registers, on `isa`
    or the chosen instruction set. It is the best of several short rounds."""
    return max(_core.measure_peak(isa or chosen_isa(), num_threads, unit))


def measure_machine(num_threads: int | None = None) -> Machine:
    """Measures the memory bandwidth and the arithmetic peaks of this machine; takes about a
    second."""
    threads = resolve_num_threads(num_threads)
    return Machine(
        name=processor_name(),
        isa=chosen_isa(),
        num_cores=num_cores(),
        num_threads=threads,
        memory_bytes=memory_bytes(),
        bandwidth_bytes_per_s=measure_bandwidth(threads),
        int8_ops_per_s=measure_peak(threads, "int8"),
        bf16_flops_per_s=measure_peak(threads, "bf16"),
        fp32_flops_per_s=measure_peak(threads, "fp32"),
    )


def processor_name() -> str:
    """Returns the processor's name if the system reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Returns the machine's physical memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory_bytes() -> int:
    """Returns the bytes that can be allocated now without swapping and within the limit of this
    process's control group (container)."""
    left = remaining_bytes()
    free = _free_bytes()
    return free if left is None else min(free, left)


def _free_bytes() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return memory_bytes()
