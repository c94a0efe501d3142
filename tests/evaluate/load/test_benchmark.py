"""Loads through one engine: what is counted, when requests come in, what is refused."""

import pytest

from fakes.loads import CountedExecutor
from fakes.toy_executor import ToyExecutor, ToyTokenizer
from paredown.engine.engine import Engine
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.speculate.ngram import NgramProposer
from paredown.engine.speculate.speculation_config import SpeculationConfig
from paredown.engine.speculate.speculator import Speculator
from paredown.errors import CapacityError, RequestError
from paredown.evaluate.load.arrival import Arrival, together
from paredown.evaluate.load.benchmark import Cell, LoadBenchmark
from paredown.evaluate.load.slo import SLO
from paredown.evaluate.load.summary import LATENCIES
from paredown.evaluate.speed.speed import slice_flops

BANDWIDTH, PEAK = 1e9, 1e12


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


def test_guesses_and_failures_are_counted() -> None:
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


def test_cells_take_turns_and_have_prompts_of_their_own() -> None:
    """What a cell leaves in the prefix cache is of no use to the next; each has all its rounds."""
    executor, seen = CountedExecutor(num_pages=256), []
    bench = benchmark(executor)
    cells = [Cell(batch=1 + i, num_input_tokens=20, num_output_tokens=5) for i in range(3)]
    results = bench.run_cells(cells, 2, lambda done, total: seen.append((done, total)))
    assert seen == [(done, 6) for done in range(1, 7)]
    assert [one.name for one in results] == ["1 x 20 + 5", "2 x 20 + 5", "3 x 20 + 5"]
    for batch, result in enumerate(results, 1):
        assert [len(run.served) for run in result.runs] == [batch, batch]
        assert result.summary.cached_share == 0
        assert result.summary.num_runs == 2
        assert set(LATENCIES) <= set(result.summary.as_json())


@pytest.mark.parametrize(("tokens", "pages"), [(16, 3), (17, 6), (32, 6), (33, 9)])
def test_a_cell_has_pages_for_all_of_it(tokens: int, pages: int) -> None:
    cell = Cell(batch=3, num_input_tokens=tokens - 4, num_output_tokens=4)
    assert cell.num_pages == pages
    executor = CountedExecutor(num_pages=cell.num_pages)
    summary = benchmark(executor).run_cells([cell], 1)[0].summary
    assert (summary.num_preemptions, summary.num_failed) == (0, 0)


def test_the_limit_of_memory_is_that_of_what_a_step_read() -> None:
    asked = []

    def measure(num_threads: int, num_bytes: int) -> float:
        asked.append((num_threads, num_bytes))
        return 4 * BANDWIDTH

    executor = CountedExecutor(num_pages=64)
    bench = LoadBenchmark(
        executor,
        lambda metered: Engine(metered, ToyTokenizer(), ScheduleConfig()),
        peak_per_s=PEAK,
        measure=measure,
    )
    (result,) = bench.run_cells([Cell(batch=1, num_input_tokens=8, num_output_tokens=3)], 1)
    (run,) = result.runs
    assert asked == [(1, (3 * 1000 + 10 * (8 + 9 + 10)) // 3)]
    assert result.summary.mbu == pytest.approx(run.num_bytes / run.model_s / (4 * BANDWIDTH))
