"""Plain floats: a module's weight is one tensor.

weight   F32, F16 or BF16 [O, I]; [I, O] in modules that are stored transposed
"""

import numpy as np

from paredown.formats.grid_weight import GridWeight
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.spec.weight import WeightSpec


def spec_of(tensor: StoredTensor) -> WeightSpec:
    return WeightSpec(dtype=STORED_DTYPES[tensor.dtype])


def decode(tensor: StoredTensor, *, transposed: bool = False) -> GridWeight:
    values_OI = np.ascontiguousarray(tensor.array.T) if transposed else tensor.array
    return GridWeight(spec=spec_of(tensor), values_OI=values_OI)
