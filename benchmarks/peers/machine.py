"""The limits of the machine, measured in a process of its own, between the peers' turns."""

from dataclasses import asdict
from typing import Any

from paredown.kernels import _core
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import measure_machine


class MachineLimits:
    """Called like a peer, through a child process."""

    def describe(self, num_threads: int) -> dict[str, Any]:
        return asdict(measure_machine(num_threads))

    def bandwidth(self, num_threads: int, num_bytes: int) -> list[float]:
        """Bytes per second of reading as many bytes as one decode step reads, again and again, in
        each of several short rounds."""
        return _core.measure_bandwidth(chosen_isa(), num_threads, num_bytes)

    def peak(self, num_threads: int, unit: str) -> list[float]:
        """Operations per second of `unit` ("int8", "bf16", "fp32") in each of several short
        rounds."""
        return _core.measure_peak(chosen_isa(), num_threads, unit)
