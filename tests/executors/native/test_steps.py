"""A model of int4 weights with integer steps against the same weights as int8 rows: gated layers,
experts and all, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.native_linear import source_of
from fakes.random_executor import TINY, random_executor
from fakes.specs import changed, silu_experts
from paredown.executors.protocol import SequenceSlice
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.kernels.linear_source import LinearSource
from paredown.kernels.native_model import NativeModel
from paredown.kernels.packed_file import Blob
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec
from paredown.spec.weight import WeightSpec
from references.linear import LinearCase, int8_rows, random_stepped_case

SPECS = {
    "dense": TINY,
    "experts": changed(
        TINY, experts=silu_experts(num=4, num_per_token=2, size=32, is_normalized=True)
    ),
}


def stepped_case(rng: np.random.Generator, spec: WeightSpec, shape: tuple[int, int]) -> LinearCase:
    case = random_stepped_case(rng, shape, group_size=32, symmetric=spec.symmetric)
    assert case.scales_OG is not None
    return replace(case, scales_OG=case.scales_OG / np.float32(64))


def with_steps(rng: np.random.Generator, spec: WeightSpec, rows: int, columns: int) -> LinearSource:
    return source_of(stepped_case(rng, spec, (rows, columns)))


def as_int8_rows(
    rng: np.random.Generator, spec: WeightSpec, rows: int, columns: int
) -> LinearSource:
    return source_of(int8_rows(stepped_case(rng, spec, (rows, columns))))


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("spec_name", SPECS)
@pytest.mark.parametrize("symmetric", [True, False])
def test_logits_are_those_of_int8_rows(
    isa: str, spec_name: str, symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    weights = WeightSpec(dtype="int4", group_size=32, symmetric=symmetric)
    executors = [
        random_executor(SPECS[spec_name], weights, num_threads=2, make_linear=make_linear)
        for make_linear in (with_steps, as_int8_rows)
    ]
    token_ids = np.random.default_rng(0).integers(0, TINY.vocab_size, 60).tolist()
    slices = [
        SequenceSlice(token_ids=token_ids[start:end], start=start, pages=[5, 2, 9, 4], num_logits=1)
        for start, end in ((0, 40), (40, 41), (41, 60))
    ]
    for part in slices:
        stepped, rows = (executor.step([part]) for executor in executors)
        assert np.isfinite(stepped).all()
        assert np.array_equal(stepped, rows)


def test_borrowed_weights_keep_their_steps() -> None:
    weights = WeightSpec(dtype="int4", group_size=32)
    executor = random_executor(TINY, weights, make_linear=with_steps)
    part = SequenceSlice(token_ids=[1, 2, 3], start=0, pages=[0], num_logits=3)
    sharing = executor.sharing_weights(KVSpec(num_pages=2))
    assert np.array_equal(sharing.step([part]), executor.step([part]))


def test_impossible_steps_are_not_borrowed() -> None:
    model = NativeModel(Context(spec=TINY), KVSpec(num_pages=1), ThreadPlan(prefill=1, decode=1))
    case = random_stepped_case(np.random.default_rng(0), (96, 64), group_size=32)
    model.add_linear("qkv", 0, source_of(case))
    (blob,) = model.packed()
    other = NativeModel(Context(spec=TINY), KVSpec(num_pages=1), ThreadPlan(prefill=1, decode=1))
    for changes in ({"step_size": 16}, {"num_steps": 3}, {"step_size": 64}, {"kind": "int8"}):
        shape = blob.fields["shape"] | changes
        with pytest.raises(ValueError, match="impossible shape"):
            other.borrow([Blob(fields=blob.fields | {"shape": shape}, data=blob.data)])
