"""The plan: which format, which batch limits, how many machines, and which speedups would save
some."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from paredown.cost.model_formats import ModelFormats
from paredown.errors import CapacityError, ConfigError
from paredown.plan.capacity import (
    LONE_REQUESTS_PER_S,
    Setup,
    capacity,
    num_machines,
    run_alone,
    run_machines,
)
from paredown.plan.demand import Demand
from paredown.plan.planned_machine import PlannedMachine, Speedup
from paredown.plan.simulate import MAX_REPLICAS
from paredown.plan.simulation import LatencyLimits, Simulation
from paredown.spec.kv import PAGE_SIZE
from paredown.spec.model import ModelSpec

# The limits tried for requests that run together and for tokens of a step. Formats are compared at
# the first limit of each.
MAX_RUNNING = (256, 64, 128, 512)
MAX_STEP_TOKENS = (2048, 512, 1024, 4096)
MAX_SPEEDUP = 64.0
_PRECISION = 1.03
# A larger limit is used only if the load grows by this factor.
_WORTHWHILE = 1.02
OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Option:
    """A format, and the load that one machine takes with it: 0 where a single request is too slow.
    An option with an `error` does not fit."""

    setup: Setup
    requests_per_s: float = 0.0
    error: CapacityError | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`options` has all formats. `best` needs the fewest machines, with the batch limits found for
    it. `speedups` says, for each property of the machine, how many times as fast it alone must be
    for `asked_machines` to suffice; None where nothing suffices."""

    demand: Demand
    machine: PlannedMachine
    options: list[Option]
    best: Option
    num_machines: int
    simulation: Simulation
    price_per_hour: float | None = None
    asked_machines: int | None = None
    speedups: dict[str, float | None] | None = None

    @property
    def tokens_per_s(self) -> float:
        """The tokens that all machines generate per second at the planned load."""
        return self.demand.computed_per_s * self.mean_output_tokens

    @property
    def mean_output_tokens(self) -> float:
        return self.simulation.num_output_tokens / max(len(self.simulation.e2es_s), 1)

    @property
    def price_per_million(self) -> float | None:
        """The price per million generated tokens."""
        if self.price_per_hour is None:
            return None
        return 1e6 * self.num_machines * self.price_per_hour / 3600 / self.tokens_per_s

    @property
    def basis(self) -> str:
        """Says in words what the predicted times of the compared formats rest on."""
        return self.machine.profile.basis(*(one.setup.formats for one in self.options))

    def as_json(self) -> dict[str, Any]:
        simulation, limits = self.simulation, self.demand.limits
        return {
            "machine": {"name": self.machine.name, "basis": self.basis},
            "requests_per_s": self.demand.requests_per_s,
            "computed_per_s": self.demand.computed_per_s,
            "limits": asdict(limits),
            "options": [_option_json(one) for one in self.options],
            "best": _option_json(self.best),
            "num_machines": self.num_machines,
            "price_per_million_tokens": self.price_per_million,
            "asked_machines": self.asked_machines,
            "speedups": self.speedups,
            "simulation": simulation.summary(limits),
        }


def make_plan(
    spec: ModelSpec,
    machine: PlannedMachine,
    demand: Demand,
    *,
    formats: Sequence[ModelFormats],
    price_per_hour: float | None = None,
    asked_machines: int | None = None,
    on_note: OnNote = lambda note: None,
) -> Plan:
    """Plans the machines. Raises CapacityError if the model fits in no format, or if no number of
    machines meets the latency limits; ConfigError for invalid numbers."""
    _check(price_per_hour, asked_machines)
    options = []
    for one in formats:
        on_note(f"one machine, {one.name}")
        options.append(_option(spec, machine, demand, one))
    best = max(options, key=lambda option: option.requests_per_s)
    if not best.requests_per_s:
        raise _impossible(options, demand)
    best = _with_best_limits(best, demand, on_note)
    on_note("the fleet")
    found = num_machines(best.setup, demand, best.requests_per_s)
    if found is None:
        raise CapacityError(
            "the load is too large for a plan",
            seen=f"more than {MAX_REPLICAS:,} machines",
            remedy="Use a larger machine, or ask for a part of the load.",
        )
    speedups = None
    if asked_machines is not None:
        speedups = _speedups(best.setup, demand, asked_machines, on_note)
    return Plan(
        demand=demand,
        machine=machine,
        options=options,
        best=best,
        num_machines=found[0],
        simulation=found[1],
        price_per_hour=price_per_hour,
        asked_machines=asked_machines,
        speedups=speedups,
    )


def _check(price_per_hour: float | None, asked_machines: int | None) -> None:
    if price_per_hour is not None and not 0 <= price_per_hour <= 1e6:
        raise ConfigError(
            "the price is out of range",
            seen=f"{price_per_hour:g} an hour",
            remedy="Give what one machine costs in an hour, 0 or more.",
        )
    if asked_machines is not None and not 1 <= asked_machines <= MAX_REPLICAS:
        raise ConfigError(
            "the number of machines is out of range",
            seen=asked_machines,
            remedy=f"Use 1 to {MAX_REPLICAS}.",
        )


def _option(
    spec: ModelSpec, machine: PlannedMachine, demand: Demand, formats: ModelFormats
) -> Option:
    setup = Setup(
        spec=spec,
        machine=machine,
        formats=formats,
        max_running=MAX_RUNNING[0],
        max_step_tokens=MAX_STEP_TOKENS[0],
    )
    try:
        return Option(setup=setup, requests_per_s=capacity(setup, demand))
    except CapacityError as error:
        return Option(setup=setup, error=error)


def _impossible(options: list[Option], demand: Demand) -> CapacityError:
    """Returns the error if no option takes any load: that of the smallest format, or that a lone
    request is too slow."""
    errors = [one.error for one in options]
    if all(errors) and errors[-1] is not None:
        return errors[-1]
    unhurried = replace(demand, limits=LatencyLimits(e2e_s=1e6))
    alone = [
        (run_alone(one.setup, unhurried, LONE_REQUESTS_PER_S), one.setup.formats.name)
        for one in options
        if one.error is None
    ]
    found, name = min(alone, key=lambda one: one[0].e2e.quantile(0.95))
    return CapacityError(
        "no number of these machines answers in time",
        seen=f"a request alone takes {found.e2e.quantile(0.95):.3g} s, its first token "
        f"{found.ttft.quantile(0.95):.3g} s, each one after it {found.tpot.quantile(0.95):.3g} s "
        f"(95th percentile) in {name}, the fastest of these formats",
        remedy="Allow more time, use a faster machine, or a smaller model.",
    )


def _with_best_limits(option: Option, demand: Demand, on_note: OnNote) -> Option:
    """Tunes one limit after another: the tokens of a step, then the requests that run together."""
    for value in MAX_STEP_TOKENS[1:]:
        setup = replace(option.setup, max_step_tokens=value)
        option = _better(option, setup, demand, on_note)
    for value in MAX_RUNNING[1:]:
        setup = replace(option.setup, max_running=value)
        option = _better(option, setup, demand, on_note)
    return option


def _better(option: Option, setup: Setup, demand: Demand, on_note: OnNote) -> Option:
    """Returns the option, or the one with this setup if it takes more."""
    if setup.max_running > setup.max_step_tokens:
        return option
    on_note(f"one machine, {setup.max_running} running, {setup.max_step_tokens} tokens a step")
    try:
        found = capacity(setup, demand, at_least=_WORTHWHILE * option.requests_per_s)
    except CapacityError:
        return option
    return replace(option, setup=setup, requests_per_s=found) if found else option


def _speedups(setup: Setup, demand: Demand, asked: int, on_note: OnNote) -> dict[str, float | None]:
    """Returns the needed speedup for each property of the machine; 1 where the machines suffice
    already."""
    found: dict[str, float | None] = {}
    for name in setup.machine.can_be_faster(setup.formats):
        on_note(f"{asked} machines with more {name}")

        def keeps(factor: float, name: str = name) -> bool:
            machine = setup.machine.faster(Speedup(**{name: factor}))
            faster = replace(setup, machine=machine)
            return run_machines(faster, demand, asked).meets(demand.limits)

        found[name] = _smallest_factor(keeps)
    return found


def _smallest_factor(keeps: Callable[[float], bool]) -> float | None:
    if keeps(1.0):
        return 1.0
    low, high = 1.0, 1.0
    while not keeps(high := high * 2):
        low = high
        if high >= MAX_SPEEDUP:
            return None
    while high > low * _PRECISION:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def _option_json(option: Option) -> dict[str, Any]:
    setup = option.setup
    fields: dict[str, Any] = {
        "weights": setup.formats.linear.name,
        "kv_dtype": setup.formats.kv_dtype,
        "max_running": setup.max_running,
        "max_step_tokens": setup.max_step_tokens,
        "requests_per_s": option.requests_per_s,
        "error": None if option.error is None else str(option.error),
    }
    if option.error is None:
        fields["kv_tokens"] = setup.num_pages * PAGE_SIZE
    return fields
