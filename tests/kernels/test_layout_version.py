"""The layout of packed weights cannot change unseen: files of packed weights carry its number.

When this fails because a layout was changed on purpose: raise kLayoutVersion in
csrc/kernels/kernel_table.h, then put the new digests here.
"""

import hashlib

import numpy as np
import pytest

from drivers.native_linear import source_of
from fakes.random_executor import TINY
from paredown.kernels import _core
from paredown.kernels.isa import ENVIRONMENT_VARIABLE, supported_isas
from paredown.kernels.native_model import NativeModel
from paredown.kernels.thread_plan import ThreadPlan
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec
from paredown.spec.weight import SHORT_BF16_ISAS
from references.linear import LinearCase, random_case, random_stepped_case

VERSION = 6
SHAPE = (48, 64)
STEPPED = "int4 with steps"
SHORT = "bf16 with short exponents"
DIGESTS = {
    "fp32": "a7d95985e1e2439b",
    "fp16": "af2cb88668d3bf9e",
    "bf16": "e68db754ff391756",
    "fp8": "cb92ed1c78e0db0c",
    "int8": "ade05a9668c789fc",
    "int6": "934a5ad457ab14bd",
    "int5": "ff6d872f551ff481",
    "int4": "1f21e2d2b285d4dd",
    "int3": "de8c6d14e72e972d",
    "int2": "d6d6ad67224ce92d",
    STEPPED: "eb23d14dfe84503a",
}
SHORT_DIGEST = "4c1ddd05c41bdeed"


def case_of(kind: str) -> LinearCase:
    rng = np.random.default_rng(3)
    if kind == SHORT:
        return random_case(rng, "bf16", SHAPE)
    if kind == STEPPED:
        return random_stepped_case(rng, SHAPE, group_size=32, symmetric=False)
    is_integer = kind.startswith("int")
    group_size = 32 if is_integer else None
    return random_case(rng, kind, SHAPE, group_size=group_size, symmetric=not is_integer)


def packed_digest(kind: str) -> str:
    case = case_of(kind)
    model = NativeModel(Context(spec=TINY), KVSpec(num_pages=1), ThreadPlan(prefill=1, decode=1))
    model.add_linear("qkv", 0, source_of(case))
    return hashlib.sha256(model.packed()[0].data.tobytes()).hexdigest()[:16]


def test_the_digests_are_of_this_version() -> None:
    assert _core.LAYOUT_VERSION == VERSION


@pytest.mark.parametrize("kind", DIGESTS)
def test_the_layout_is_that_of_its_version(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "generic")
    assert packed_digest(kind) == DIGESTS[kind]


@pytest.mark.parametrize("isa", sorted(SHORT_BF16_ISAS & set(supported_isas())))
def test_short_exponents_lie_as_in_their_version(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, isa)
    assert packed_digest(SHORT) == SHORT_DIGEST
