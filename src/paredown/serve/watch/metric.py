"""Metric: a number for Prometheus, in its text format (version 0.0.4)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from paredown.serve.watch.coarse import CoarseNumbers

Values = Mapping[str, float]


def same(values: Values) -> Values:
    return values


def total(values: Values) -> Values:
    """Returns the sum of the values under all labels, without a label."""
    return {"": sum(values.values())}


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A name that vLLM's dashboards ask for, beside our own. `values` turns our values into
    those."""

    name: str
    values: Callable[[Values], Values] = same
    label: str = ""

    @property
    def full_name(self) -> str:
        return f"vllm:{self.name}"


def vllm(*names: str, values: Callable[[Values], Values] = same) -> tuple[Alias, ...]:
    return tuple(Alias(name=name, values=values) for name in names)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. `values` are keyed by its label, or a single one by "". A `step` is set where
    exact values would reveal single requests."""

    name: str
    help: str
    kind: Literal["gauge", "counter"]
    values: Values = field(default_factory=dict)
    label: str = ""
    step: int = 0
    aliases: tuple[Alias, ...] = ()

    def coarse(self, numbers: CoarseNumbers) -> "Metric":
        """Returns the metric with its values in steps."""
        if not self.step:
            return self
        values = {
            key: numbers.show(f"{self.name} {key}", value, self.step)
            for key, value in self.values.items()
        }
        return replace(self, values=values, help=f"{self.help} In steps of {self.step} or so.")

    def lines(self, model_name: str) -> Iterator[str]:
        """Yields its lines; those of aliases name the model."""
        yield from self._lines(f"paredown_{self.name}", self.values, self.label, {})
        for alias in self.aliases:
            label = alias.label or self.label
            yield from self._lines(
                alias.full_name, alias.values(self.values), label, alias_labels(model_name)
            )

    def _lines(
        self, name: str, values: Values, label: str, labels: Mapping[str, str]
    ) -> Iterator[str]:
        yield f"# HELP {name} {self.help}"
        yield f"# TYPE {name} {self.kind}"
        for key, value in values.items():
            own = {label: key} if label and key else {}
            yield f"{name}{shown_labels({**labels, **own})} {value}"


def gauge(
    name: str, help: str, value: float, step: int = 0, aliases: tuple[Alias, ...] = ()
) -> Metric:
    values = {"": float(value)}
    return Metric(name=name, help=help, kind="gauge", values=values, step=step, aliases=aliases)


def counter(
    name: str, help: str, value: float, step: int = 0, aliases: tuple[Alias, ...] = ()
) -> Metric:
    values = {"": float(value)}
    return Metric(
        name=f"{name}_total", help=help, kind="counter", values=values, step=step, aliases=aliases
    )


def alias_labels(model_name: str) -> dict[str, str]:
    """Returns the labels that vLLM's dashboards choose by."""
    return {"model_name": model_name, "engine": "0"}


def shown_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    listed = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{listed}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
