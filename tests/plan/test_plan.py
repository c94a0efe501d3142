"""The plan: what it finds keeps the latencies, less would not, and what cannot be is said."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.specs import changed, flat_spec
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.machines import find_machine
from paredown.cost.memory import MEMORY_SHARE
from paredown.cost.model_formats import ModelFormats
from paredown.errors import CapacityError, ConfigError
from paredown.evaluate.load.arrival import BLOCK_TOKENS, Arrival
from paredown.formats.table import FORMATS
from paredown.plan.capacity import (
    LONE_REQUESTS_PER_S,
    Setup,
    capacity,
    run_alone,
    run_machines,
    saturated_requests_per_s,
)
from paredown.plan.demand import Demand
from paredown.plan.lengths import parse_lengths
from paredown.plan.plan import MAX_SPEEDUP, Plan, _smallest_factor, make_plan
from paredown.plan.planned_machine import PlannedMachine, Speedup
from paredown.plan.simulation import LatencyLimits, Simulation
from paredown.plan.trace import Trace
from paredown.plan.workload import DrawnLengths, TraceLengths
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.rotary import Rotary

SPEC = flat_spec(
    family="llama",
    vocab_size=32000,
    hidden_size=4096,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    intermediate_size=14336,
    max_positions=4096,
    positions=Rotary(theta=10000.0),
    norm="rms",
    norm_eps=1e-5,
    activation="silu",
    gated=True,
)
MACHINE = PlannedMachine(profile=MachineProfile(key="h100", roofs=find_machine("h100")))
BF16 = ModelFormats(activation_bytes=2)
INT8 = ModelFormats(linear=FORMATS["int8"], activation_bytes=2)
LENGTHS = DrawnLengths(prompt=parse_lengths("100-300"), output=parse_lengths("20-60"))
DEMAND = Demand(requests_per_s=1200, lengths=LENGTHS, limits=LatencyLimits(e2e_s=0.6))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(
        SPEC, MACHINE, DEMAND, formats=[BF16, INT8], price_per_hour=3.6, asked_machines=3
    )


def test_the_machines_suffice_and_fewer_do_not(plan: Plan) -> None:
    setup, number = plan.best.setup, plan.num_machines
    assert number > 3
    assert plan.simulation.meets(DEMAND.limits)
    assert run_machines(setup, DEMAND, number).meets(DEMAND.limits)
    assert not run_machines(setup, DEMAND, math.floor(0.7 * number)).meets(DEMAND.limits)


def test_the_best_format_takes_most(plan: Plan) -> None:
    bf16, int8 = plan.options
    assert plan.best.setup.formats == INT8
    assert plan.best.requests_per_s >= int8.requests_per_s > bf16.requests_per_s > 0
    # Nothing takes more than what saturates a machine.
    assert int8.requests_per_s < 1.2 * saturated_requests_per_s(int8.setup, DEMAND)


def test_formats_that_were_not_measured_are_named(plan: Plan) -> None:
    assert "fitted to fp16 products" in plan.basis
    assert "taken over to int8 (not measured there)" in plan.basis


def test_the_price(plan: Plan) -> None:
    assert plan.mean_output_tokens == pytest.approx(40, rel=0.03)
    per_second = plan.num_machines * 3.6 / 3600
    expected = 1e6 * per_second / (1200 * plan.mean_output_tokens)
    assert plan.price_per_million == pytest.approx(expected)


def test_what_would_have_to_be_faster(plan: Plan) -> None:
    assert plan.speedups is not None
    assert plan.speedups.keys() == {"bandwidth", "arithmetic", "memory", "everything"}
    everything = plan.speedups["everything"]
    assert everything is not None
    assert 1 < everything < 4
    setup = plan.best.setup

    def with_faster(factor: float) -> bool:
        machine = setup.machine.faster(Speedup(everything=factor))
        return run_machines(replace(setup, machine=machine), DEMAND, 3).meets(DEMAND.limits)

    assert with_faster(everything)
    assert not with_faster(0.8 * everything)
    # More of one thing alone is of less use than more of all.
    for name in ("bandwidth", "arithmetic"):
        factor = plan.speedups[name]
        assert factor is None or factor >= 0.95 * everything


def test_what_suffices_need_not_be_faster(plan: Plan) -> None:
    easy = replace(DEMAND, requests_per_s=1.0)
    found = make_plan(SPEC, MACHINE, easy, formats=[INT8], asked_machines=3)
    assert found.num_machines == 1
    assert found.speedups is not None
    assert set(found.speedups.values()) == {1.0}


def test_a_response_cache_saves_machines() -> None:
    setup = Setup(spec=SPEC, machine=MACHINE, formats=INT8, max_running=128, max_step_tokens=1024)
    alone = capacity(setup, DEMAND)
    assert alone == capacity(setup, replace(DEMAND, hit_rate=0.5, requests_per_s=7))
    assert replace(DEMAND, hit_rate=0.25).computed_per_s == 900


def test_pages_fill_what_the_weights_leave() -> None:
    pages = MACHINE.num_pages(SPEC, BF16, max_running=10_000, max_step_tokens=512)
    page_bytes = 2 * 32 * 8 * 128 * 2 * PAGE_SIZE
    left = MEMORY_SHARE * 80e9 - 2 * SPEC.num_parameters()
    assert pages * page_bytes == pytest.approx(left, rel=0.05)
    more = MACHINE.faster(Speedup(memory=2.0))
    assert more.num_pages(SPEC, BF16, max_running=10_000, max_step_tokens=512) > 2 * pages
    # Never more than what all running requests could hold.
    few = MACHINE.num_pages(SPEC, BF16, max_running=3, max_step_tokens=512)
    assert few == 3 * SPEC.max_positions / PAGE_SIZE


def test_a_model_that_fits_in_no_format() -> None:
    huge = changed(SPEC, num_layers=32 * 40)
    with pytest.raises(CapacityError, match=r"int8.*does not fit on h100.*GB too much"):
        make_plan(huge, MACHINE, DEMAND, formats=[BF16, INT8])


def test_a_format_that_does_not_fit_is_told() -> None:
    large = changed(SPEC, num_layers=32 * 6)
    slow = replace(DEMAND, requests_per_s=2, limits=LatencyLimits(e2e_s=5))
    found = make_plan(large, MACHINE, slow, formats=[BF16, INT8])
    assert found.options[0].error is not None
    assert found.best.setup.formats == INT8
    first = found.as_json()["options"][0]
    assert "does not fit" in first["error"]


def test_an_answer_that_is_always_late() -> None:
    hasty = replace(DEMAND, limits=LatencyLimits(e2e_s=0.01))
    with pytest.raises(CapacityError, match=r"answers in time.*a request alone takes"):
        make_plan(SPEC, MACHINE, hasty, formats=[BF16])


def test_the_fastest_format_is_told_where_all_are_late() -> None:
    hasty = replace(DEMAND, limits=LatencyLimits(e2e_s=0.01))
    for formats in ([BF16, INT8], [INT8, BF16]):
        with pytest.raises(CapacityError, match=r"in int8, .*the fastest of these formats"):
            make_plan(SPEC, MACHINE, hasty, formats=formats)


def shared_trace(num_shared_blocks: int) -> Trace:
    """Prompts of six blocks, of which the first ones are those of all."""
    requests = tuple(
        Arrival(
            at_s=0.1 * number,
            num_input_tokens=6 * BLOCK_TOKENS,
            num_output_tokens=2,
            block_ids=tuple(
                block if block < num_shared_blocks else 10 + 6 * number + block
                for block in range(6)
            ),
        )
        for number in range(150)
    )
    return Trace(name="shared", requests=requests)


def test_formats_are_chosen_with_the_prefixes_of_a_trace() -> None:
    """A prompt alone takes longer than is allowed, but what it shares need not be computed."""
    setup = Setup(spec=SPEC, machine=MACHINE, formats=BF16, max_running=64, max_step_tokens=2048)
    found = {}
    for num_shared in (0, 5):
        trace = shared_trace(num_shared)
        limits = LatencyLimits(ttft_s=0.03)
        lengths = TraceLengths(trace=trace)
        demand = Demand(requests_per_s=5, lengths=lengths, limits=limits, trace=trace)
        found[num_shared] = capacity(setup, demand), saturated_requests_per_s(setup, demand)
    assert trace.new_share == pytest.approx(1 / 6, rel=0.05)
    assert found[0][0] == 0
    # More than what saturates a machine that finds nothing again.
    assert found[0][1] < found[5][0] < found[5][1]


def test_prompts_that_are_too_long() -> None:
    long = DrawnLengths(prompt=parse_lengths("2000-9000"), output=parse_lengths("5"))
    with pytest.raises(CapacityError, match="of the prompts are longer"):
        make_plan(SPEC, MACHINE, replace(DEMAND, lengths=long), formats=[BF16])


def test_what_is_late_alone_is_not_tried_in_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of minutes would fill the machine long before the first of them is late."""
    rates = []

    def counting(setup: Setup, demand: Demand, rate: float) -> Simulation:
        rates.append(rate)
        return run_alone(setup, demand, rate)

    monkeypatch.setattr("paredown.plan.capacity.run_alone", counting)
    long = DrawnLengths(prompt=parse_lengths("100"), output=parse_lengths("200000"))
    setup = Setup(spec=SPEC, machine=MACHINE, formats=BF16, max_running=64, max_step_tokens=2048)
    assert capacity(setup, replace(DEMAND, lengths=long)) == 0
    assert rates == [LONE_REQUESTS_PER_S]


@pytest.mark.parametrize(
    "options", [{"price_per_hour": -1.0}, {"price_per_hour": math.nan}, {"asked_machines": 0}]
)
def test_senseless_questions(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="is out of range"):
        make_plan(SPEC, MACHINE, DEMAND, formats=[BF16], **options)  # type: ignore[arg-type]


@given(st.floats(0.1, 200))
def test_the_smallest_factor_is_found_to_three_per_cent(needed: float) -> None:
    """Of anything that is enough from some factor on; what does not help within reach has none."""
    found = _smallest_factor(lambda factor: factor >= needed)
    if needed <= 1:
        assert found == 1
    elif needed <= MAX_SPEEDUP:
        assert found is not None
        assert needed <= found <= 1.03 * needed
    else:
        assert found is None


def test_a_plan_says_in_json_what_it_found(plan: Plan) -> None:
    fields = plan.as_json()
    assert fields["computed_per_s"] == fields["requests_per_s"] == DEMAND.requests_per_s
    assert fields["best"]["requests_per_s"] == plan.best.requests_per_s
    assert fields["best"]["kv_tokens"] == PAGE_SIZE * plan.best.setup.num_pages
    assert [one["weights"] for one in fields["options"]] == ["bf16", "int8"]
    assert fields["simulation"]["num_replicas"] == min(plan.num_machines, 4)
    assert plan.tokens_per_s == pytest.approx(1200 * plan.mean_output_tokens)
