"""A load through the engine: who gets what when, and the figures that follow."""

import io
import itertools
import statistics
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from fakes.toy_executor import ToyExecutor, ToyTokenizer, toy_spec
from paredown.engine.engine import Engine
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.errors import CapacityError, ConfigError, RequestError, UnsupportedError
from paredown.evaluate.load.arrival import Arrival, together
from paredown.evaluate.load.benchmark import Cell, LoadBenchmark
from paredown.evaluate.load.run_load import LoadRun, Moment, Served
from paredown.evaluate.load.slo import SLO
from paredown.evaluate.load.summary import LATENCIES, Percentiles, step_bytes, summarize
from paredown.evaluate.pictures import load_plot
from paredown.evaluate.pictures.load_plot import draw_load
from paredown.evaluate.pictures.picture import require_matplotlib
from paredown.evaluate.speed.speed import prefill_flops, slice_flops
from paredown.kernels.thread_plan import ThreadPlan

BANDWIDTH, PEAK = 1e9, 1e12


class CountedExecutor(ToyExecutor):
    weight_bytes = 1000
    kv_token_bytes = 10
    threads = ThreadPlan(prefill=1, decode=1)
    isa = "generic"

    def step(self, slices):
        self.calls = [*getattr(self, "calls", []), [replace(one) for one in slices]]
        return super().step(slices)


def benchmark(executor: ToyExecutor, slo: SLO | None = None, **options) -> LoadBenchmark:
    speculator = options.pop("speculator", None)
    config = ScheduleConfig(max_waiting=100, **options.pop("config", {}))
    return LoadBenchmark(
        executor,
        lambda metered: Engine(metered, ToyTokenizer(), config, speculator),
        peak_per_s=PEAK,
        slo=slo,
        measure=lambda _threads, _bytes: BANDWIDTH,
        **options,
    )


def served(arrival_s: float, *times: float, num_tokens: int | None = None, **more) -> Served:
    return Served(
        arrival_s=arrival_s,
        num_input_tokens=10,
        first_step_s=arrival_s + 0.5,
        token_times=list(times),
        num_tokens=len(times) if num_tokens is None else num_tokens,
        **more,
    )


def load_run(*requests: Served, **more) -> LoadRun:
    values = {
        "moments": [Moment(1.0, 2, 3, 0.25), Moment(2.0, 1, 4, 0.5)],
        "duration_s": 10.0,
        "model_s": 5.0,
        "num_steps": 4,
        "num_bytes": 2_000_000_000,
        "num_flops": 1e12,
        "num_preemptions": 1,
    }
    return LoadRun(served=list(requests), **(values | more))


def test_the_latencies_of_a_request() -> None:
    one = served(1.0, 3.0, 4.0, 4.5, 7.5)
    assert (one.ttft_s, one.e2e_s, one.queue_s) == (2.0, 6.5, 0.5)
    assert one.itl_s == [1.0, 0.5, 3.0]
    assert one.tpot_s == pytest.approx(4.5 / 3)
    # Draft tokens that were accepted come together: gaps are what a reader sees, tokens are all
    # counted.
    assert served(0.0, 1.0, 2.0, num_tokens=5).tpot_s == pytest.approx(0.25)
    assert served(0.0, 1.0).tpot_s is None


def test_the_figures_of_a_load() -> None:
    requests = (served(0.0, 1.0, 2.0), served(1.0, 3.0, num_cached_tokens=5))
    failed = served(2.0, failure="the model failed")
    run = load_run(*requests, failed, num_proposed=8, num_accepted=2)
    slower = load_run(*requests, failed, duration_s=20.0)
    found = summarize(
        [run, slower], bandwidth_bytes_per_s=BANDWIDTH, peak_per_s=PEAK, slo=SLO(ttft_s=1.5)
    )
    assert (found.num_requests, found.num_failed) == (6, 2)
    assert found.requests_per_s == pytest.approx(statistics.median((0.3, 0.15)))
    assert found.input_tokens_per_s == pytest.approx(statistics.median((3.0, 1.5)))
    assert found.output_tokens_per_s == pytest.approx(statistics.median((0.3, 0.15)))
    assert found.ttft_s.p50 == 1.5
    assert found.tpot_s.max == found.itl_s.max == 1.0
    assert found.mbu == pytest.approx(4e9 / 10 / BANDWIDTH)
    assert found.mfu == pytest.approx(2e12 / 10 / PEAK)
    assert found.model_share == pytest.approx(10 / 30)
    assert found.cached_share == pytest.approx(10 / 60)
    assert (found.most_waiting, found.most_running, found.most_kv_share) == (2, 4, 0.5)
    assert (found.num_preemptions, found.num_proposed, found.num_accepted) == (2, 8, 2)
    assert found.goodput_share == pytest.approx(2 / 6), "the one that failed does not count"
    assert found.goodput_per_s == pytest.approx(statistics.median((0.1, 0.05)))
    assert step_bytes([run, slower]) == 4_000_000_000 // 8


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_lie_between_neighbours(values: list[float]) -> None:
    found, ordered = Percentiles.of(values), sorted(values)
    for share, value in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99)):
        place = share * (len(ordered) - 1)
        low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
        assert value == pytest.approx(low + (place - int(place)) * (high - low))
    assert found.max == ordered[-1]
    assert Percentiles.of([]) is None


def test_limits_of_latency() -> None:
    slo = SLO.parse("ttft=0.5s, tpot=50ms,itl=100ms")
    assert slo == SLO(ttft_s=0.5, tpot_s=0.05, itl_s=0.1)
    assert SLO.parse("tpot=250us").tpot_s == pytest.approx(250e-6)
    assert str(slo) == "ttft 500 ms, tpot 50 ms, itl 100 ms"
    assert slo.is_met(served(0.0, 0.5, 0.55, 0.6))
    assert not slo.is_met(served(0.0, 0.51, 0.55, 0.6))
    assert not slo.is_met(served(0.0, 0.4, 0.5, 0.6))
    assert not slo.is_met(served(0.0, 0.1, 0.105, 0.106, 0.206 + 1e-9))
    assert not SLO(e2e_s=1.0).is_met(served(0.0, 0.5, 1.1))
    assert slo.is_met(served(0.0, 0.5))
    assert not SLO().is_met(served(0.0, failure="the model failed"))


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=", "ttft=5", "ttft=-1s", "p99=1s", "ttft=1s,ttft=2s", "tpot=0ms"]
)
def test_senseless_limits_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        SLO.parse(text)


def test_operations_of_chunks_are_those_of_the_whole() -> None:
    spec = toy_spec()
    ends = [0, 1, 7, 30, 31]
    chunks = sum(
        slice_flops(spec, start=a, num_tokens=b - a, num_logits=b == 31)
        for a, b in itertools.pairwise(ends)
    )
    assert chunks == prefill_flops(spec, 31)


def test_what_a_load_reads_and_computes_is_counted() -> None:
    executor = CountedExecutor(num_pages=64)
    bench = benchmark(executor)
    executor.calls = []
    (result,) = bench.run_cells([Cell(batch=3, num_input_tokens=20, num_output_tokens=4)], 1)
    (run,) = result.runs
    slices = [one for call in executor.calls for one in call]
    assert run.num_steps == len(executor.calls)
    contexts = sum(one.start + len(one.token_ids) for one in slices)
    assert run.num_bytes == 1000 * run.num_steps + 10 * contexts
    whole = slice_flops(executor.spec, start=0, num_tokens=23, num_logits=4)
    assert run.num_flops == 3 * whole, "the last token of an answer is not computed"
    assert 0 < run.model_s < run.duration_s
    assert result.summary.cached_share == 0
    assert {len(one.token_times) for one in run.served} == {4}


def test_requests_come_in_when_they_are_to() -> None:
    times = (0.0, 0.05, 0.05, 0.3)
    arrivals = [Arrival(at_s=at, num_input_tokens=5, num_output_tokens=3) for at in times]
    bench = benchmark(CountedExecutor(num_pages=64, delay_s=0.002))
    seen = []
    result = bench.run_arrivals("four", arrivals, lambda done, total: seen.append((done, total)))
    (run,) = result.runs
    assert [one.arrival_s for one in run.served] == list(times)
    for one in run.served:
        assert one.arrival_s <= one.first_step_s <= one.token_times[0]
        assert one.token_times == sorted(one.token_times)
        assert one.num_tokens == 3
    assert run.duration_s >= 0.3
    assert run.served[0].token_times[-1] < 0.3, "an early one does not wait for a late one"
    assert seen[-1] == (4, 4)
    assert result.summary.model_share < 0.9, "nobody computes while nobody asks"


def test_a_shared_beginning_is_found_and_preemptions_are_seen() -> None:
    arrivals = [
        Arrival(at_s=0.0, num_input_tokens=100, num_output_tokens=30, block_ids=(9,))
        for _ in range(6)
    ]
    bench = benchmark(CountedExecutor(num_pages=10))
    summary = bench.run_arrivals("alike", arrivals).summary
    assert summary.cached_share > 0.5
    assert summary.num_preemptions > 0
    assert summary.most_kv_share > 0.9
    off = benchmark(CountedExecutor(num_pages=10), config={"prefix_cache": False})
    assert off.run_arrivals("alike", arrivals).summary.cached_share == 0


def test_draft_tokens_and_failures_are_counted() -> None:
    executor = CountedExecutor(num_pages=64)
    speculator = Speculator(
        NgramProposer(min_match=1), SpeculationConfig(kind="ngram", is_adaptive=False)
    )
    bench = benchmark(executor, SLO(e2e_s=60.0), speculator=speculator)
    cell = Cell(batch=2, num_input_tokens=60, num_output_tokens=40)
    first = bench.run_cells([cell], 1)[0].summary
    assert first.num_proposed > 0
    assert 0 <= first.num_accepted < first.num_proposed
    assert first.goodput_share == 1
    executor.failing_steps = frozenset({executor.num_steps + 3})
    second = bench.run_cells([cell], 2)[0].summary
    assert (second.num_requests, second.num_failed) == (4, 2)
    assert second.goodput_share == 0.5
    executor.failing_steps = frozenset(range(executor.num_steps, executor.num_steps + 100))
    with pytest.raises(RequestError, match=r"every request failed.*injected failure"):
        bench.run_cells([cell], 1)


def test_what_does_not_fit_is_refused_before_anything_runs() -> None:
    executor = CountedExecutor(num_pages=4)
    bench = benchmark(executor)
    num_steps = executor.num_steps
    fits = Cell(batch=1, num_input_tokens=60, num_output_tokens=4)
    with pytest.raises(CapacityError, match="room for 64"):
        bench.run_cells([fits, Cell(batch=1, num_input_tokens=60, num_output_tokens=5)], 1)
    with pytest.raises(CapacityError, match="room for 64"):
        bench.run_arrivals("long", together(1, 64, 1))
    assert executor.num_steps == num_steps


@pytest.mark.parametrize("num_cells", [1, 9])
def test_the_picture_shows_something(num_cells: int) -> None:
    bench = benchmark(CountedExecutor(num_pages=256))
    cells = [Cell(batch=1 + i, num_input_tokens=9, num_output_tokens=5) for i in range(num_cells)]
    picture = imread(io.BytesIO(draw_load(bench.run_cells(cells, 2), "toy")))
    height, width = picture.shape[:2]
    for rows, columns in itertools.product(
        (slice(0, height // 2), slice(height // 2, height)),
        (slice(0, width // 2), slice(width // 2, width)),
    ):
        panel = picture[rows, columns, :3][::4, ::4]
        assert len(np.unique((panel * 255).astype(int).reshape(-1, 3), axis=0)) > 20
    assert set(LATENCIES) <= set(bench.run_cells(cells, 1)[0].summary.as_json())


def test_a_thinned_line_keeps_its_peaks_and_its_pauses() -> None:
    moments = [Moment(float(i), 0, i % 997, 0.5) for i in range(20_000)]
    moments[7_001] = Moment(7_001.0, 5_000, 0, 0.5)
    moments[9_307] = Moment(9_307.0, 0, -1, 0.5)
    thinned = load_plot._thinned(moments)
    assert len(thinned) <= 3_000
    assert moments[7_001] in thinned
    assert moments[9_307] in thinned
    assert moments[-1] == thinned[-1]
    assert [one.time_s for one in thinned] == sorted(one.time_s for one in thinned)
    few = moments[:3]
    assert set(load_plot._thinned(few)) == set(few)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"paredown\[compress\].*leave out --plot"):
        require_matplotlib("leave out --plot")
