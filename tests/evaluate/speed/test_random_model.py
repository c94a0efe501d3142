"""Made-up models: arrays as the core wants them, and a layer that keeps its input's variance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.native_linear import ISAS
from fakes.specs import gated
from paredown.evaluate.speed.random_model import random_linear, random_model
from paredown.evaluate.speed.swept_model import SweptLoad
from paredown.formats.table import COSTED_FORMATS
from paredown.kernels import _core
from paredown.spec.kv import KVSpec
from paredown.spec.model import LearnedPositions
from paredown.spec.run_form import run_form
from paredown.spec.weight import WeightSpec

NAMES = sorted(COSTED_FORMATS)


@pytest.mark.parametrize("name", [name for name in NAMES if "fp8" not in name])
def test_a_layer_keeps_the_size_of_its_input(name: str) -> None:
    """Within a factor of four; so that a hundred of them neither vanish nor overflow."""
    source = random_linear(COSTED_FORMATS[name], 128, 1024)
    x = np.random.default_rng(2).standard_normal((8, 1024), dtype=np.float32)
    y = np.empty((8, 128), np.float32)
    _core.Linear(ISAS[0], 1, source.fields()).run(x, y)
    assert 1 / 4 < float(np.sqrt((y**2).mean())) < 4
    assert np.isfinite(y).all()


@pytest.mark.parametrize("name", NAMES)
@given(rows=st.integers(1, 5), groups=st.integers(1, 3))
@settings(max_examples=5, deadline=None)
def test_arrays_have_the_shapes_of_the_form(name: str, rows: int, groups: int) -> None:
    weights = COSTED_FORMATS[name]
    columns = groups * (weights.group_size or 64)
    form = run_form(weights, columns)
    arrays = random_linear(weights, rows, columns).arrays
    assert arrays["values"].shape == (rows, columns)
    assert ("zero_points" in arrays) == (weights.is_quantized and not weights.symmetric)
    assert ("steps" in arrays) == form.integer_steps
    if weights.is_quantized:
        num_groups = groups if weights.group_size else 1
        num_scales = 1 if form.integer_steps else num_groups
        assert arrays["scales"].shape == (rows, num_scales)
        assert np.frexp(arrays["scales"].max())[0] == 0.5, "every dtype of scales holds it"
        for optional in {"zero_points", "steps"} & set(arrays):
            assert arrays[optional].shape == (rows, num_groups)


def test_numbers_are_the_same_each_time() -> None:
    first, second = (random_linear(WeightSpec(dtype="int4", group_size=32), 9, 64) for _ in "ab")
    assert all(np.array_equal(first.arrays[one], second.arrays[one]) for one in first.arrays)


SIZES = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 96}
MAKES = {
    "gated": gated(**SIZES),
    "head norms": gated(**SIZES, qk_norm=True),
    "layer norms, learned positions": gated(
        **SIZES, positions=LearnedPositions(offset=2), norm="layer", gated=False, activation="gelu"
    ),
    "one head of keys": gated(**SIZES, num_kv_heads=1, num_layers=1),
}


@pytest.mark.parametrize("name", MAKES)
def test_a_model_of_any_make_predicts(name: str) -> None:
    """All its weights are there, and logits of one token are neither equal nor huge."""
    spec, load = MAKES[name], SweptLoad(3, 9, 1)
    executor = random_model(spec, WeightSpec(dtype="bf16"), KVSpec(num_pages=load.num_pages), 1)
    logits_TV = executor.step(load.slices())
    assert logits_TV.shape == (3, spec.vocab_size)
    assert np.isfinite(logits_TV).all()
    assert 0.1 < logits_TV.std() < 10
