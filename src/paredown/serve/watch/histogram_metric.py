"""HistogramMetric: a histogram for Prometheus, in its text format (version 0.0.4)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paredown.serve.watch.coarse import CoarseNumbers
from paredown.serve.watch.histogram import Histogram
from paredown.serve.watch.metric import Alias, alias_labels, shown_labels


@dataclass(frozen=True, kw_only=True)
class HistogramMetric:
    """`name` ends with the unit. `counts` are cumulative, one for each of `bounds` and one for
    all. A `step` is set where exact times would tell whether a request found a prefix."""

    name: str
    help: str
    bounds: Sequence[float]
    counts: list[int]
    sum: float
    step: int = 0
    aliases: tuple[Alias, ...] = ()

    @classmethod
    def of(
        cls, histogram: Histogram, name: str, help: str, step: int, aliases: tuple[Alias, ...]
    ) -> "HistogramMetric":
        return cls(
            name=name,
            help=help,
            bounds=histogram.bounds,
            counts=histogram.cumulative(),
            sum=histogram.sum,
            step=step,
            aliases=aliases,
        )

    def coarse(self, numbers: CoarseNumbers) -> "HistogramMetric":
        """Returns the metric as it was some steps ago."""
        if not self.step:
            return self
        counts, sum_ = numbers.show_histogram(self.name, self.counts, self.sum, self.step)
        help = f"{self.help} Shown anew every {self.step} or so."
        return replace(self, counts=counts, sum=sum_, help=help)

    def lines(self, model_name: str) -> Iterator[str]:
        """Yields its lines; those of aliases name the model."""
        named = [(f"paredown_{self.name}", dict[str, str]())]
        named += [(alias.full_name, alias_labels(model_name)) for alias in self.aliases]
        for name, labels in named:
            yield f"# HELP {name} {self.help}"
            yield f"# TYPE {name} histogram"
            yield from self._buckets(name, labels)
            yield f"{name}_sum{shown_labels(labels)} {self.sum}"
            yield f"{name}_count{shown_labels(labels)} {self.counts[-1]}"

    def _buckets(self, name: str, labels: Mapping[str, str]) -> Iterator[str]:
        ends = [str(float(bound)) for bound in self.bounds]
        for end, count in zip([*ends, "+Inf"], self.counts, strict=True):
            yield f"{name}_bucket{shown_labels({**labels, 'le': end})} {count}"
