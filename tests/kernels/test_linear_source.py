"""The core refuses bad fields of a weight that is given to it."""

import numpy as np
import pytest

from drivers.native_linear import source_of
from paredown.kernels import _core
from paredown.kernels.linear_source import named_arrays
from references.linear import random_case


def test_bad_arrays_are_refused() -> None:
    rng = np.random.default_rng(0)
    case = random_case(rng, "int4", (16, 64), group_size=32)
    codes = case.values_OI

    def refused(
        message: str,
        kind: str,
        *arrays: object,
        zeros: np.ndarray | None = None,
        isa: str = "",
        scale: float = 0,
        **others: object,
    ) -> None:
        group_size, scales, activations = arrays
        weight = {
            "kind": kind,
            "activations": activations,
            "group_size": group_size,
            "input_scale": scale,
            "bitmap": "auto",
            "arrays": named_arrays(values=codes, scales=scales, zero_points=zeros),
        }
        with pytest.raises(ValueError, match=message):
            _core.Linear(isa, 1, weight | others)

    refused("scales and zero points", "int4", 16, case.scales_OG, "int8_group")
    refused("number of columns", "int4", 65, np.ones((16, 0), np.float32), "int8_group")
    zeros = np.full((16, 2), 16, np.uint8)
    refused("none of the 16 codes", "int4", 32, case.scales_OG, "int8_group", zeros=zeros)
    refused("multiple of 32", "int4", 16, np.ones((16, 4), dtype=np.float32), "int8_group")
    refused("'int7' is unknown", "int7", 32, case.scales_OG, "int8_group")
    refused("'int9' is unknown", "int4", 32, case.scales_OG, "int9")
    refused("size of its kind", "fp32", 64, None, "fp32")
    halves = {"arrays": named_arrays(values=codes.astype(np.uint16))}
    refused("only bf16, fp8 and integer", "fp16", 32, None, "bf16", **halves)
    refused("only integer", "fp8", 32, case.scales_OG, "int8_row")
    refused("one scale per row", "fp8", 32, case.scales_OG, "bf16")
    refused("must be positive", "int4", 32, case.scales_OG, "int8_static")
    refused("not supported by this", "int4", 32, case.scales_OG, "int8_group", isa="mmx")
    refused("no field 'num_rows'", "int4", 32, case.scales_OG, "int8_group", num_rows=16)
    arrays = {"values": codes, "scales": case.scales_OG}
    minima = {"arrays": arrays | {"minima": case.scales_OG}}
    refused("no array 'minima'", "int4", 32, None, "int8_group", **minima)
    wide = {"arrays": arrays | {"scales": case.scales_OG.astype(np.float64)}}
    refused("numbers of another type", "int4", 32, None, "int8_group", **wide)
    refused("no values", "int4", 32, None, "int8_group", arrays={})
    source = source_of(case).fields()
    del source["group_size"]
    with pytest.raises(ValueError, match="field of a weight is missing"):
        _core.Linear("", 1, source)
