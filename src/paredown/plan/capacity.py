"""Finds by simulation how much load one machine can take, and how many machines a load needs."""

from dataclasses import dataclass, replace

from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_cost import StepLoad, prefill_load
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.plan.demand import Demand
from paredown.plan.planned_machine import PlannedMachine
from paredown.plan.simulate import MAX_REPLICAS, Fleet, simulate
from paredown.plan.simulation import Simulation
from paredown.plan.workload import MIN_REQUESTS_PER_S
from paredown.spec.context import Context
from paredown.spec.kept_pages import KeptPages
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec

# A queue that keeps growing shows within this many times the allowed latency.
_LATENCIES = 10
_MIN_REQUESTS, _MAX_REQUESTS = 600, 8_000
_WARMUP_SHARE = 0.1
# The relative precision of the rates found.
_PRECISION = 0.04
# At this rate requests hardly ever overlap.
LONE_REQUESTS_PER_S = MIN_REQUESTS_PER_S
# Of a larger fleet only this many machines are simulated, with their share of the load.
_MAX_SIMULATED = 4


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How each machine is run."""

    spec: ModelSpec
    machine: PlannedMachine
    formats: ModelFormats
    max_running: int
    max_step_tokens: int

    @property
    def num_pages(self) -> int:
        """The pages of a machine. Raises CapacityError."""
        return self.machine.num_pages(
            self.spec,
            self.formats,
            max_running=self.max_running,
            max_step_tokens=self.max_step_tokens,
        )

    @property
    def max_tokens(self) -> int:
        """The most tokens of a request. Raises CapacityError."""
        return min(self.spec.max_positions, self.num_pages * PAGE_SIZE)

    def fleet(self, num_replicas: int, demand: Demand) -> Fleet:
        """Returns such machines. Queues have no limit: one that is too long shows in the
        latencies."""
        return Fleet(
            num_pages=self.num_pages,
            max_positions=self.spec.max_positions,
            num_replicas=num_replicas,
            windows=self.spec.windows,
            kept=KeptPages.of(Context(spec=self.spec)),
            schedule=ScheduleConfig(
                max_running=self.max_running,
                max_step_tokens=self.max_step_tokens,
                max_waiting=1_000_000,
            ),
            router=demand.router,
        )


def saturated_requests_per_s(setup: Setup, demand: Demand) -> float:
    """Returns the rate of a machine without any latency limit: the batch is always full, and
    shared prefixes are always cached. Raises CapacityError."""
    prompt, output = demand.mean_tokens(setup.max_tokens)
    context, new = prompt + output / 2, prompt * demand.new_share
    num_running = max(min(setup.max_running, setup.num_pages * PAGE_SIZE / (new + output)), 1)
    cost = setup.machine.cost(setup.spec, setup.formats)
    windows = setup.spec.windows
    windowed = tuple(round(num_running * min(context, window)) for window in windows)
    count, tokens = round(num_running), round(num_running * context)
    step_s = cost.step_s(
        StepLoad(
            num_tokens=count,
            num_logits=count,
            num_requests=count,
            attention_pairs=tokens,
            kv_tokens_read=tokens,
            windowed_pairs=windowed,
            windowed_kv_tokens_read=windowed,
        )
    )
    # A prompt shares its steps with decodes, so only the added time counts as its own.
    alone_s = cost.step_s(prefill_load(1, 0, windows))
    num_new = max(round(new), 1)
    prompt_s = cost.step_s(prefill_load(num_new, round(prompt) - num_new, windows)) - alone_s
    return 1 / (output * step_s / num_running + max(prompt_s, 0.0))


def run_machines(
    setup: Setup, demand: Demand, num_machines: int, *, as_traced: bool = True
) -> Simulation:
    """Simulates the whole load on `num_machines` machines, or a few of them with their share. It
    stops once the limits cannot be met any more."""
    simulated = min(num_machines, _MAX_SIMULATED)
    rate = demand.computed_per_s * simulated / num_machines
    longest_s = max(
        demand.limits.e2e_s or 0.0, demand.limits.ttft_s or 0.0, 100 * (demand.limits.tpot_s or 0.0)
    )
    wanted = max(_MIN_REQUESTS, 100 * simulated, round(_LATENCIES * longest_s * rate))
    num_requests = min(wanted, _MAX_REQUESTS)
    make = demand.workload if as_traced else demand.random_workload
    return simulate(
        make(rate, num_requests),
        setup.fleet(simulated, demand),
        setup.machine.cost(setup.spec, setup.formats),
        num_warmup=round(_WARMUP_SHARE * num_requests),
        limits=demand.limits,
    )


def capacity(setup: Setup, demand: Demand, at_least: float = 0.0) -> float:
    """Returns the requests per second that one machine serves within the latency limits, or 0 if
    that is not more than `at_least`. Raises CapacityError if the model does not fit."""
    highest = 1.2 * saturated_requests_per_s(setup, demand)
    lowest = at_least if at_least else max(highest / 200, LONE_REQUESTS_PER_S)
    # A request that is late alone is late in every load; a heavy load takes long to show it.
    if not at_least and not _keeps(setup, demand, LONE_REQUESTS_PER_S):
        return 0.0
    if lowest >= highest or not _keeps(setup, demand, lowest):
        return 0.0
    while highest > lowest * (1 + _PRECISION):
        # Most machines can take between half and all of the load that saturates them.
        middle = max((lowest * highest) ** 0.5, 0.5 * highest)
        if _keeps(setup, demand, middle):
            lowest = middle
        else:
            highest = middle
    return lowest


def num_machines(setup: Setup, demand: Demand, per_machine: float) -> tuple[int, Simulation] | None:
    """Returns the fewest machines behind the router that meet the latency limits, and their
    simulation, from the load that one machine takes. Returns None if `MAX_REPLICAS` are too few."""
    estimate = max(round(demand.computed_per_s / per_machine), 1)
    too_few, enough = 0, None
    number = estimate
    while enough is None:
        if number > MAX_REPLICAS:
            return None
        found = run_machines(setup, demand, number)
        if found.meets(demand.limits):
            enough = (number, found)
        else:
            too_few, number = number, max(number + 1, round(1.15 * number))
    while enough[0] - too_few > max(1, enough[0] // 100):
        # Several machines behind one router take more than each alone, but seldom much more.
        middle = max((too_few + enough[0]) // 2, enough[0] * 4 // 5)
        found = run_machines(setup, demand, min(middle, enough[0] - 1))
        if found.meets(demand.limits):
            enough = (min(middle, enough[0] - 1), found)
        else:
            too_few = min(middle, enough[0] - 1)
    return enough


def run_alone(setup: Setup, demand: Demand, requests_per_s: float) -> Simulation:
    """Simulates that rate on one machine. Where the trace has prefixes it is replayed: without
    them the load would be another."""
    alone = replace(demand, requests_per_s=requests_per_s, hit_rate=0.0)
    return run_machines(setup, alone, 1, as_traced=demand.shares_prefixes)


def _keeps(setup: Setup, demand: Demand, requests_per_s: float) -> bool:
    return run_alone(setup, demand, requests_per_s).meets(demand.limits)
