"""A linear layer on the native core from the arrays of the reference."""

import numpy as np

from paredown.kernels import _core
from references.linear import LinearCase


def native_linear(case: LinearCase, isa: str, num_threads: int = 1) -> _core.Linear:
    return _core.Linear(
        isa,
        num_threads,
        case.kind,
        case.values_OI,
        case.group_size,
        case.scales_OG,
        case.zero_points_OG,
        case.steps_OG,
        case.bias_O,
        case.activations,
        case.input_scale or 0.0,
    )


def run_linear(case: LinearCase, x_TI: np.ndarray, isa: str, num_threads: int = 1) -> np.ndarray:
    y = np.full((x_TI.shape[0], case.values_OI.shape[0]), np.nan, dtype=np.float32)
    native_linear(case, isa, num_threads).run(x_TI, y)
    return y
