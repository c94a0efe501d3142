"""Metric: a number for Prometheus, in its text format (version 0.0.4)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from paredown.serve.watch.coarse import CoarseNumbers


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. `values` are keyed by its label, or a single one by "". A `step` is set where
    exact values would reveal single requests."""

    name: str
    help: str
    kind: Literal["gauge", "counter"]
    values: Mapping[str, float] = field(default_factory=dict)
    label: str = ""
    step: int = 0

    def coarse(self, numbers: CoarseNumbers) -> "Metric":
        """Returns the metric with its values in steps."""
        if not self.step:
            return self
        values = {
            key: numbers.show(f"{self.name} {key}", value, self.step)
            for key, value in self.values.items()
        }
        return replace(self, values=values, help=f"{self.help} In steps of {self.step} or so.")

    def lines(self) -> Iterator[str]:
        name = f"paredown_{self.name}"
        yield f"# HELP {name} {self.help}"
        yield f"# TYPE {name} {self.kind}"
        for key, value in self.values.items():
            label = f'{{{self.label}="{key}"}}' if self.label else ""
            yield f"{name}{label} {value}"


def gauge(name: str, help: str, value: float, step: int = 0) -> Metric:
    return Metric(name=name, help=help, kind="gauge", values={"": float(value)}, step=step)


def counter(name: str, help: str, value: float, step: int = 0) -> Metric:
    values = {"": float(value)}
    return Metric(name=f"{name}_total", help=help, kind="counter", values=values, step=step)
