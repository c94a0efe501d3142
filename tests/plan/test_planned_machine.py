"""What a plan counts with: pages beside the weights, and steps of a machine that is faster."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.test_fit_steps import TRUTH
from fakes.specs import gated
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.machines import MACHINES
from paredown.cost.memory import MEMORY_SHARE, model_memory
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.errors import CapacityError
from paredown.plan.planned_machine import PlannedMachine, Speedup
from paredown.spec.kv import PAGE_SIZE, KVSpec
from paredown.spec.weight import WeightSpec

SPEC = gated(
    hidden_size=2048, num_layers=24, num_heads=32, head_dim=64, intermediate_size=8192,
    vocab_size=32000, max_positions=4096,
)  # fmt: skip
BF16 = ModelFormats(activation_bytes=2)
L4 = PlannedMachine(profile=MachineProfile(key="l4", roofs=MACHINES["l4"]))


@settings(max_examples=30)
@given(st.integers(1, 4096), st.sampled_from([64, 512, 4096]), st.floats(0.5, 4))
def test_pages_fill_the_machine_and_not_one_fits_beside_them(
    max_running: int, max_step_tokens: int, memory: float
) -> None:
    machine = L4.faster(Speedup(memory=memory))
    pages = machine.num_pages(SPEC, BF16, max_running=max_running, max_step_tokens=max_step_tokens)
    used = model_memory(
        SPEC, BF16, batch=max_running, context=PAGE_SIZE, step_tokens=max_step_tokens
    )
    page_bytes = used.kv / max_running
    assert page_bytes == 2 * 24 * 2 * 64 * 2 * PAGE_SIZE
    most = max_running * SPEC.max_positions // PAGE_SIZE
    available = int(MEMORY_SHARE * memory * 24e9)
    fixed = used.total - used.kv
    assert fixed + pages * page_bytes <= available
    assert pages == most or fixed + (pages + 1) * page_bytes > available


@pytest.mark.parametrize(("context", "pages"), [(31, 6), (32, 6), (33, 9)])
def test_a_request_never_holds_more_than_its_context(context: int, pages: int) -> None:
    spec = gated(max_positions=context)
    assert L4.num_pages(spec, BF16, max_running=3, max_step_tokens=64) == pages


def test_two_pages_are_the_least() -> None:
    """A machine of exactly so many bytes, and one of a byte less, which is told what it lacks."""
    memory = model_memory(SPEC, BF16, batch=4, context=1, step_tokens=64)
    page_bytes = KVSpec(num_pages=1).page_bytes(SPEC)
    needed = memory.total - memory.kv + 2 * page_bytes
    exact = L4.faster(Speedup(memory=(needed + 0.5) / MEMORY_SHARE / 24e9))
    assert exact.num_pages(SPEC, BF16, max_running=4, max_step_tokens=64) == 2
    lacking = L4.faster(Speedup(memory=(needed - 0.5) / MEMORY_SHARE / 24e9))
    with pytest.raises(CapacityError, match=r"in bf16, KV bf16 does not fit on l4.*1 B too much"):
        lacking.num_pages(SPEC, BF16, max_running=4, max_step_tokens=64)


@given(st.floats(1, 64), st.integers(1, 64), st.integers(1, 4000))
@settings(max_examples=25, deadline=None)
def test_a_machine_that_is_faster_in_all_takes_so_many_times_less(
    factor: float, batch: int, context: int
) -> None:
    """Each roof so many times as high, or the whole step so many times as fast, is the same where
    nothing but roofs is known; one roof alone never gives more."""
    machine = PlannedMachine(profile=MachineProfile(key="this", roofs=MACHINES["xeon-emr"]))
    load = decode_load(batch, context)
    seconds = machine.cost(SPEC, BF16).step_s(load)

    def faster_s(**speedup: float) -> float:
        return machine.faster(Speedup(**speedup)).cost(SPEC, BF16).step_s(load)

    assert faster_s(everything=factor) == pytest.approx(seconds / factor)
    both = faster_s(bandwidth=factor, arithmetic=factor)
    assert both == pytest.approx(seconds / factor)
    for name in ("bandwidth", "arithmetic"):
        assert both * (1 - 1e-9) <= faster_s(**{name: factor}) <= seconds * (1 + 1e-9)
    assert faster_s(memory=factor) == seconds


def test_decoding_one_needs_bandwidth_and_a_prompt_needs_arithmetic() -> None:
    def gain(name: str, tokens: int) -> float:
        load = decode_load(1, 10) if tokens == 1 else prefill_load(tokens)
        faster = L4.faster(Speedup(**{name: 2.0}))
        return L4.cost(SPEC, BF16).step_s(load) / faster.cost(SPEC, BF16).step_s(load)

    assert gain("bandwidth", 1) > 1.9
    assert gain("arithmetic", 1) < 1.1
    assert gain("arithmetic", 4000) > 1.9
    assert gain("bandwidth", 4000) < 1.1


def test_measured_steps_get_faster_as_a_whole_alone() -> None:
    profile = MachineProfile(key="this", roofs=TRUTH.roofs, fit=TRUTH)
    machine = PlannedMachine(profile=profile)
    known = ModelFormats()
    assert machine.can_be_faster(known) == ("memory", "everything")
    unknown = ModelFormats(linear=WeightSpec(dtype="int2"))
    assert set(machine.can_be_faster(unknown)) == {
        "bandwidth",
        "arithmetic",
        "memory",
        "everything",
    }
    load = decode_load(1, 100)
    faster = machine.faster(Speedup(everything=4.0)).cost(SPEC, known)
    assert faster.step_s(load) == machine.cost(SPEC, known).step_s(load) / 4
    assert machine.name == "this"
