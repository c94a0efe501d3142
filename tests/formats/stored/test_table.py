"""Whatever a quantization_config holds, it is understood or refused by name."""

import copy
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.quantized_folders import awq_section, gptq_section
from paredown.errors import ParedownError, UnsupportedError
from paredown.formats.stored.compressed_tensors.write_section import quantization_config
from paredown.formats.stored.table import STORED_FORMATS, read_quantization
from paredown.formats.table import FORMATS
from paredown.spec.weight import WeightSpec

NAMES = ["x.qweight", "x.qzeros", "x.scales", "x.g_idx", "y.weight"]
INPUTS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
FP8_INPUTS = INPUTS | {"type": "float"}
BLOCK = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
SECTIONS = [
    quantization_config(FORMATS["int4-g32-asym"], ["lm_head"]) | {"kv_cache_scheme": INPUTS},
    {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": BLOCK, "input_activations": FP8_INPUTS},
            "FP8": ["re:.*up"],
        },
    },
    gptq_section(WeightSpec(dtype="int4"), dynamic={"+:x": {"bits": 8}}),
    awq_section(),
    {"quant_method": "auto-round", "bits": 4, "extra_config": {"x": {"bits": 8}, "y": {}}},
]


def places(value: object, path: tuple = ()) -> Iterator[tuple]:
    yield path
    parts = value.items() if isinstance(value, dict) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 130)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["tensor", "group", "block", "int", "float", "re:(", "gptq", "Linear"]),
    lambda children: (
        st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=4), children, max_size=2)
    ),
    max_leaves=4,
)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_value_in_any_place_is_understood_or_refused(data: st.DataObject) -> None:
    section = copy.deepcopy(data.draw(st.sampled_from(SECTIONS)))
    *path, last = data.draw(st.sampled_from([path for path in places(section) if path]))
    owner = section
    for key in path:
        owner = owner[key]
    owner[last] = data.draw(JSON)
    with suppress(ParedownError):
        read_quantization(section, NAMES).form_for("x")


def test_each_method_reads_its_own() -> None:
    for section in SECTIONS[:-1]:
        stored = next(
            one for one in STORED_FORMATS.values() if one.method == section["quant_method"]
        )
        assert stored.read(section, NAMES) == read_quantization(section, NAMES)


@pytest.mark.parametrize("method", [None, "exl2", ["gptq"], {}])
def test_other_methods_are_refused(method: object) -> None:
    with pytest.raises(UnsupportedError, match="quant_method"):
        read_quantization({"quant_method": method}, NAMES)
