"""The picture of a simulation: what its lines say, without looking at it."""

import io
from pathlib import Path

import pytest
from matplotlib.image import imread

from paredown.errors import OutputError
from paredown.evaluate.pictures.picture import LIGHT, load_matplotlib
from paredown.plan import simulation_plot
from paredown.plan.simulation import Distribution, LatencyLimits, Moment, Simulation
from paredown.plan.simulation_plot import draw_simulation, write_simulation_plot

LIMITS = LatencyLimits(e2e_s=3.0, ttft_s=0.5)


@pytest.fixture
def found() -> Simulation:
    result = Simulation()
    for number in range(100):
        result.ttfts_s.append(0.01 * (number + 1))
        result.e2es_s.append(0.1 * (number + 1))
        result.tpots_s.append(0.001)
    result.moments = [Moment(float(one), one % 3, 5 - one % 3, 0.1 * one) for one in range(10)]
    return result


def panel() -> object:
    figure = load_matplotlib("matplotlib.figure").Figure()
    return figure.subplots()


def test_it_is_a_picture_of_two_panels(found: Simulation, tmp_path: Path) -> None:
    write_simulation_plot(found, LIMITS, "a load", tmp_path / "load.png")
    data = (tmp_path / "load.png").read_bytes()
    picture = imread(io.BytesIO(data))
    height, width = picture.shape[:2]
    assert width > 2 * height
    for half in (picture[:, : width // 2], picture[:, width // 2 :]):
        assert half.std() > 0.05
    assert draw_simulation(Simulation(), LIMITS, "nothing came")
    with pytest.raises(OutputError):
        write_simulation_plot(found, LIMITS, "a load", tmp_path / "no" / "load.png")


def test_shares_of_requests_rise_with_the_time_they_took(found: Simulation) -> None:
    shares, seconds = simulation_plot._curve(found.e2e)
    assert shares == sorted(shares)
    assert seconds == sorted(seconds)
    assert (shares[-1], seconds[-1]) == (100.0, pytest.approx(10.0))
    for share, value in zip(shares, seconds, strict=True):
        assert 100 * found.e2e.share_within(value) >= share - 1e-9
    assert simulation_plot._curve(Distribution([2.0]))[1] == [2.0] * 400


def test_a_line_for_each_latency_and_a_dotted_one_for_each_limit(found: Simulation) -> None:
    axes = panel()
    simulation_plot._draw_latencies(axes, found, LIMITS, LIGHT)
    lines = axes.get_lines()  # type: ignore[attr-defined]
    named = {one.get_label(): one for one in lines if not one.get_label().startswith("_")}
    assert set(named) == {"to the first token", "to the last token"}
    assert max(named["to the first token"].get_xdata()) == pytest.approx(1.0)
    assert max(named["to the last token"].get_xdata()) == pytest.approx(10.0)
    dotted = [one for one in lines if one.get_linestyle() == ":"]
    upright = {one.get_xdata()[0]: one for one in dotted if len(set(one.get_xdata())) == 1}
    assert set(upright) == {3.0, 0.5}
    # A limit has the colour of its line.
    assert upright[0.5].get_color() == named["to the first token"].get_color()
    assert upright[3.0].get_color() == named["to the last token"].get_color()


def test_the_queue_shows_who_runs_who_waits_and_what_is_held(found: Simulation) -> None:
    axes = panel()
    simulation_plot._draw_queue(axes, found, LIGHT)
    figure = axes.figure  # type: ignore[attr-defined]
    requests, pages = figure.get_axes()
    by_label = {
        line.get_label(): list(line.get_ydata()) for one in (requests, pages) for line in one.lines
    }
    assert by_label["requests running"] == [one.num_running for one in found.moments]
    assert by_label["requests waiting"] == [one.num_waiting for one in found.moments]
    assert by_label["KV pages held, %"] == pytest.approx([10.0 * one for one in range(10)])
    assert requests.get_ylim()[1] >= 5
    assert pages.get_ylim()[1] >= 100


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1 s"), (1500.0, "1,500 s"), (0.9999, "1 s"), (0.05, "50 ms"), (2e-4, "200 us")],
)
def test_seconds_have_a_unit_that_people_read(value: float, text: str) -> None:
    assert simulation_plot._seconds(value) == text
