"""Histograms as Prometheus defines them."""

from hypothesis import given
from hypothesis import strategies as st

from paredown.serve.watch.histogram import Histogram
from paredown.serve.watch.histogram_metric import HistogramMetric
from paredown.serve.watch.metric import vllm

NUMBERS = st.floats(-10, 10)


@given(st.lists(NUMBERS, max_size=50), st.lists(NUMBERS, min_size=1, max_size=8, unique=True))
def test_a_bucket_counts_what_is_at_most_its_end(values, bounds):
    histogram = Histogram(sorted(bounds))
    for value in values:
        histogram.observe(value)
    wanted = [sum(value <= bound for value in values) for bound in sorted(bounds)]
    assert histogram.cumulative() == [*wanted, len(values)]
    assert abs(histogram.sum - sum(values)) < 1e-9


def test_a_value_that_comes_often_is_counted_as_often():
    histogram = Histogram((1.0,))
    histogram.observe(0.5, times=4)
    assert histogram.cumulative() == [4, 4]
    assert histogram.sum == 2.0


def test_the_lines_of_both_names():
    histogram = Histogram((0.5, 1))
    histogram.observe(0.75)
    metric = HistogramMetric.of(histogram, "wait_seconds", "A wait.", 0, vllm("wait_s"))
    assert list(metric.lines('a"b'))[:7] == [
        "# HELP paredown_wait_seconds A wait.",
        "# TYPE paredown_wait_seconds histogram",
        'paredown_wait_seconds_bucket{le="0.5"} 0',
        'paredown_wait_seconds_bucket{le="1.0"} 1',
        'paredown_wait_seconds_bucket{le="+Inf"} 1',
        "paredown_wait_seconds_sum 0.75",
        "paredown_wait_seconds_count 1",
    ]
    last = list(metric.lines('a"b'))[-1]
    assert last == 'vllm:wait_s_count{model_name="a\\"b",engine="0"} 1'
