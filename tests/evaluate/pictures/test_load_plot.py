"""The picture of a load: what its lines say, and that each panel shows something."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.image import imread

from fakes.loads import load_run, served
from paredown.errors import OutputError
from paredown.evaluate.load.benchmark import LoadResult
from paredown.evaluate.load.run_load import Moment
from paredown.evaluate.load.summary import summarize
from paredown.evaluate.pictures import load_plot
from paredown.evaluate.pictures.load_plot import draw_load, write_plot


def result(name: str = "3 x 8 + 2", *, factor: float = 1.0) -> LoadResult:
    requests = [served(0.0, 0.5 * factor, 1.0), served(0.0, 0.25 * factor), served(0.0, 2.0, 4.0)]
    runs = [load_run(*requests, served(0.0, failure="broken")) for _ in range(2)]
    summary = summarize(runs, bandwidth_bytes_per_s=1e9, peak_per_s=1e12, slo=None)
    return LoadResult(name=name, runs=runs, summary=summary)


@pytest.fixture
def panel() -> Any:
    return Figure().subplots()


def test_a_distribution_rises_to_all_in_milliseconds(panel: Any) -> None:
    load_plot._draw_distribution(panel, [result(), result("b", factor=0.5)], "ttft_s", "TTFT, ms")
    first, second = (line for line in panel.get_lines() if line.get_label() in ("3 x 8 + 2", "b"))
    assert first.get_xdata().tolist() == pytest.approx([250, 250, 250, 500, 500, 2000, 2000])
    assert first.get_ydata().tolist() == pytest.approx([0, *(place / 6 for place in range(1, 7))])
    assert second.get_xdata().tolist() == pytest.approx([125, 125, 125, 250, 250, 2000, 2000])
    assert first.get_color() != second.get_color()
    levels = [line.get_ydata()[0] for line in panel.get_lines()[2:]]
    assert levels == [0.5, 0.95, 0.99]


def test_the_queue_and_its_pages_over_time(panel: Any) -> None:
    load_plot._draw_queue(panel, result())
    running, waiting = panel.get_lines()
    assert (running.get_label(), waiting.get_label()) == ("running", "waiting")
    assert set(running.get_ydata()) == {3, 4}
    assert set(waiting.get_ydata()) == {2, 1}
    pages = Figure().subplots()
    load_plot._draw_pages(pages, result())
    (area,) = pages.collections
    assert area.get_paths()[0].vertices[:, 1].max() == 50, "per cent"


def test_bars_are_rates_and_shares_of_the_limits(panel: Any) -> None:
    results = [result("a"), result("b")]
    load_plot._draw_rates(panel, results)
    rates = [bar.get_height() for bar in panel.patches]
    assert rates == [one.summary.output_tokens_per_s for one in results]
    limits = Figure().subplots()
    load_plot._draw_limits(limits, results)
    heights = [bar.get_height() for bar in limits.patches]
    assert heights == pytest.approx([40.0, 40.0, 20.0, 20.0]), "MBU, then MFU, in per cent"
    centres = [bar.get_x() + bar.get_width() / 2 for bar in limits.patches]
    assert centres == pytest.approx([-0.2, 0.8, 0.2, 1.2])
    assert [text.get_text() for text in limits.get_xticklabels()] == ["a", "b"]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_a_thinned_line_has_the_ends_of_every_stretch(counts: list[int], most: int) -> None:
    moments = [Moment(float(at), one, at % 2, 0.5) for at, one in enumerate(counts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_plot, "_MAX_POINTS", most)
        found = load_plot._thinned(moments)
    size = -(-len(moments) // most)
    assert len(found) <= 3 * most
    for start in range(0, len(moments), size):
        stretch = moments[start : start + size]
        own = [one for one in found if start <= one.time_s < start + size]
        totals = [one.num_waiting + one.num_running for one in stretch]
        kept = [one.num_waiting + one.num_running for one in own]
        assert (min(kept), max(kept), own[-1]) == (min(totals), max(totals), stretch[-1])


def test_it_is_written_or_refused(tmp_path: Path) -> None:
    write_plot(tmp_path / "load.png", [result()], "toy")
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OutputError, match=r"load\.png could not be written"):
        write_plot(tmp_path / "none" / "load.png", [result()], "toy")
    (tmp_path / "link.png").symlink_to("elsewhere")
    write_plot(tmp_path / "link.png", [result()], "toy")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("num_results", [1, 9])
def test_each_panel_shows_something(num_results: int) -> None:
    results = [result(f"{number} x 8 + 2") for number in range(num_results)]
    picture = imread(io.BytesIO(draw_load(results, "toy")))
    height, width = picture.shape[:2]
    for rows, columns in itertools.product(
        (slice(0, height // 2), slice(height // 2, height)),
        (slice(0, width // 2), slice(width // 2, width)),
    ):
        panel = picture[rows, columns, :3][::4, ::4]
        assert len(np.unique((panel * 255).astype(int).reshape(-1, 3), axis=0)) > 20


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
