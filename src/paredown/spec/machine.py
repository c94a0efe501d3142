"""Machine: the limits of one computer, measured by `paredown doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Limits of a machine at `num_threads` threads; rates are measured, never from a datasheet."""

    name: str
    isa: str
    num_cores: int
    num_threads: int
    memory_bytes: int
    bandwidth_bytes_per_s: float
    int8_ops_per_s: float
    bf16_flops_per_s: float
    fp32_flops_per_s: float
