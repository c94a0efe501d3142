"""How much a machine takes: what is found keeps the limits, and a little more does not; against a
machine whose capacity is known without a simulation."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.specs import gated
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.machines import MACHINES
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import StepCost, StepLoad
from paredown.plan.capacity import (
    LONE_REQUESTS_PER_S,
    Setup,
    capacity,
    num_machines,
    run_alone,
    run_machines,
    saturated_requests_per_s,
)
from paredown.plan.demand import Demand
from paredown.plan.lengths import parse_lengths
from paredown.plan.planned_machine import PlannedMachine
from paredown.plan.simulate import MAX_REPLICAS
from paredown.plan.simulation import LatencyLimits
from paredown.plan.workload import DrawnLengths
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec


@dataclass(frozen=True)
class PerStep:
    """A second for each step, and so many for each token, and for each that it attends to."""

    fixed_s: float = 1.0
    token_s: float = 0.0
    kv_token_s: float = 0.0

    def step_s(self, step: StepLoad) -> float:
        seconds = self.fixed_s + self.token_s * step.num_tokens
        return seconds + self.kv_token_s * step.kv_tokens_read


@dataclass(frozen=True, kw_only=True)
class MadeUpMachine(PlannedMachine):
    """Has a known cost, and pages for all."""

    steps: PerStep
    pages: int = 100_000

    def cost(self, spec: ModelSpec, formats: ModelFormats) -> StepCost:
        return self.steps

    def num_pages(
        self, spec: ModelSpec, formats: ModelFormats, *, max_running: int, max_step_tokens: int
    ) -> int:
        return self.pages


def made_up(fixed_s: float = 1.0, token_s: float = 0.0, **options: int) -> Setup:
    pages = options.pop("pages", 100_000)
    machine = MadeUpMachine(
        profile=MachineProfile(key="l4", roofs=MACHINES["l4"]),
        steps=PerStep(fixed_s, token_s),
        pages=pages,
    )
    return Setup(
        spec=gated(max_positions=4096),
        machine=machine,
        formats=ModelFormats(),
        **({"max_running": 8, "max_step_tokens": 512} | options),
    )


def demand(prompt: int, output: int, **limits: float) -> Demand:
    lengths = DrawnLengths(prompt=parse_lengths(str(prompt)), output=parse_lengths(str(output)))
    return Demand(requests_per_s=1.0, lengths=lengths, limits=LatencyLimits(**limits))


@given(
    st.integers(1, 300),
    st.integers(1, 200),
    st.integers(1, 64),
    st.floats(0.01, 10),
    st.floats(0, 0.1),
)
@settings(max_examples=40, deadline=None)
def test_what_saturates_a_machine_is_a_full_batch_all_the_time(
    prompt: int, output: int, max_running: int, fixed_s: float, token_s: float
) -> None:
    """In the time of an answer's steps a batch gives so many answers; each also had a prompt, of
    which all tokens but one are added to some step."""
    setup = made_up(fixed_s, token_s, max_running=max_running)
    found = saturated_requests_per_s(setup, demand(prompt, output))
    answers_s = output * (fixed_s + max_running * token_s)
    prompt_s = (prompt - 1) * token_s
    assert 1 / found == pytest.approx(answers_s / max_running + prompt_s)


def test_an_answer_attends_to_the_mean_of_its_contexts() -> None:
    """Over its steps the context grows from the prompt to prompt and answer."""
    setup = made_up(0.0, max_running=1)
    machine = replace(setup.machine, steps=PerStep(0.0, 0.0, 1.0))  # type: ignore[call-arg]
    found = saturated_requests_per_s(replace(setup, machine=machine), demand(100, 60))
    answer_s = sum(100 + number for number in range(60))
    # The prompt's own step reads it once; what a prompt of one token reads is not its own.
    assert 1 / found == pytest.approx(answer_s + 99, rel=0.01)


def test_fewer_run_at_once_where_pages_end() -> None:
    whole = saturated_requests_per_s(made_up(max_running=64), demand(100, 60))
    assert whole == pytest.approx(64 / 60)
    # 20 pages have room for two of 160 tokens.
    few = saturated_requests_per_s(made_up(max_running=64, pages=20), demand(100, 60))
    assert few == pytest.approx(2 / 60)
    assert made_up(pages=20).max_tokens == 20 * PAGE_SIZE
    assert made_up().max_tokens == 4096


@pytest.mark.parametrize("max_running", [4, 16])
def test_a_capacity_is_what_the_batch_gives_where_time_is_no_matter(max_running: int) -> None:
    """Answers of ten tokens, so many at a time, a step each second. A queue that only grows is seen
    from a tenth more on: a load lasts ten times as long as an answer may."""
    setup = made_up(max_running=max_running)
    found = capacity(setup, demand(1, 10, e2e_s=200.0))
    assert 0.95 < found / (max_running / 10) < 1.13


def test_a_capacity_keeps_the_limits_and_a_little_more_does_not() -> None:
    setup, wanted = made_up(), demand(1, 10, e2e_s=13.0)
    found = capacity(setup, wanted)
    assert 0 < found < 8 / 10
    assert run_alone(setup, wanted, found).meets(wanted.limits)
    assert not run_alone(setup, wanted, 1.08 * found).meets(wanted.limits)
    # Less time is less load, and more machines at once change nothing for each.
    assert capacity(setup, replace(wanted, limits=LatencyLimits(e2e_s=11.5))) < found
    assert capacity(setup, wanted, at_least=1.1 * found) == 0
    assert capacity(setup, wanted, at_least=0.9 * found) == pytest.approx(found, rel=0.05)


@pytest.mark.parametrize(("seconds", "fits"), [(10.9, False), (11.1, True)])
def test_who_is_late_alone_is_late_in_any_load(seconds: float, fits: bool) -> None:
    """One that comes in a step waits for its end, then takes ten."""
    setup, wanted = made_up(), demand(1, 10, e2e_s=seconds - 1)
    assert (capacity(setup, wanted) > 0) == fits
    alone = run_alone(setup, wanted, LONE_REQUESTS_PER_S)
    assert alone.e2e.quantile(0.95) == pytest.approx(10.0)


def test_the_fewest_machines_keep_the_limits() -> None:
    setup, wanted = made_up(), demand(1, 10, e2e_s=13.0)
    each = capacity(setup, wanted)
    for rate in (0.5 * each, 2.5 * each, 7.5 * each):
        load = replace(wanted, requests_per_s=rate)
        found = num_machines(setup, load, each)
        assert found is not None
        number, simulation = found
        assert simulation.meets(wanted.limits)
        assert run_machines(setup, load, number).meets(wanted.limits)
        assert number == 1 or not run_machines(setup, load, number - 1).meets(wanted.limits)
        # Never more than as many as each would take alone, but for the last one's rounding.
        assert rate / each / 1.3 <= number <= rate / each + 1


def test_a_first_estimate_of_the_capacity_need_not_be_right() -> None:
    setup, load = made_up(), replace(demand(1, 10, e2e_s=13.0), requests_per_s=3.0)
    found = {found[0] for each in (0.1, 0.5, 5.0) if (found := num_machines(setup, load, each))}
    assert len(found) == 1


def test_a_load_beyond_all_machines_has_no_number() -> None:
    load = replace(demand(1, 10, e2e_s=13.0), requests_per_s=2.0 * MAX_REPLICAS)
    assert num_machines(made_up(), load, 2.0) is None


def test_a_few_machines_stand_for_many() -> None:
    """Their share of the load, and no more of them than four."""
    setup, load = made_up(), replace(demand(1, 10, e2e_s=13.0), requests_per_s=20.0)
    many = run_machines(setup, load, 40)
    assert many.num_replicas == 4
    share = run_machines(setup, replace(load, requests_per_s=2.0), 4)
    assert many.e2es_s == share.e2es_s
    cached = replace(load, hit_rate=0.5)
    assert run_machines(setup, cached, 20).e2es_s == share.e2es_s


def test_a_fleet_is_set_up_as_each_machine_is() -> None:
    setup = replace(made_up(max_running=3, max_step_tokens=64), spec=gated(sliding_window=24))
    fleet = setup.fleet(5, replace(demand(1, 1), router="round-robin"))
    assert (fleet.num_replicas, fleet.router, fleet.num_pages) == (5, "round-robin", 100_000)
    assert (fleet.windows, fleet.kept.window) == ((24,), 24)
    assert fleet.max_positions == setup.spec.max_positions
    assert (fleet.schedule.max_running, fleet.schedule.max_step_tokens) == (3, 64)
