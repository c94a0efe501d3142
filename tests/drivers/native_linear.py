"""Builds a native linear layer from the reference's arrays; lists the forms it takes."""

from itertools import product

import numpy as np

from paredown.kernels import _core
from paredown.kernels.isa import supported_isas
from paredown.kernels.linear_source import LinearSource, named_arrays
from references.linear import INTEGER_BITS, LinearCase

ISAS = supported_isas()
INTEGER_ACTIVATIONS = ("int8_group", "int16_group", "int8_row", "int8_static", "bf16", "fp32")
# Every kind of weight with every format of inputs that it takes.
FORMS = [
    ("fp32", "fp32"),
    ("fp16", "fp32"),
    ("bf16", "fp32"),
    ("bf16", "bf16"),
    ("fp8", "fp32"),
    ("fp8", "bf16"),
    *product(INTEGER_BITS, INTEGER_ACTIVATIONS),
]


def source_of(case: LinearCase) -> LinearSource:
    return LinearSource(
        kind=case.kind,
        activations=case.activations,
        group_size=case.group_size,
        input_scale=case.input_scale or 0.0,
        arrays=named_arrays(
            values=case.values_OI,
            scales=case.scales_OG,
            zero_points=case.zero_points_OG,
            steps=case.steps_OG,
            bias=case.bias_O,
        ),
    )


def native_linear(case: LinearCase, isa: str, num_threads: int = 1) -> _core.Linear:
    return _core.Linear(isa, num_threads, source_of(case).fields())


def run_linear(case: LinearCase, x_TI: np.ndarray, isa: str, num_threads: int = 1) -> np.ndarray:
    y = np.full((x_TI.shape[0], case.values_OI.shape[0]), np.nan, dtype=np.float32)
    native_linear(case, isa, num_threads).run(x_TI, y)
    return y
