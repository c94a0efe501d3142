"""Draws a load: the distribution of latencies, and the queue over time or the rates over batch
sizes."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paredown.evaluate.load.benchmark import LoadResult
from paredown.evaluate.load.run_load import Moment
from paredown.evaluate.load.summary import latencies
from paredown.evaluate.pictures.picture import (
    BLUE,
    GREEN,
    LIGHT,
    ORANGE,
    PINK,
    RED,
    SKY,
    load_matplotlib,
    picture_text,
)
from paredown.models.files.whole_file import whole_file

_COLORS = (BLUE, RED, GREEN, ORANGE, PINK, SKY)
_DPI = 150
_FONT = 9.0
# The most points per line; more would not be visible.
_MAX_POINTS = 1000


def write_plot(path: Path, results: Sequence[LoadResult], title: str) -> None:
    """Writes the plot. Raises OutputError where it cannot be written."""
    picture = draw_load(results, title)
    with whole_file(path) as file:
        file.write(picture)


def draw_load(results: Sequence[LoadResult], title: str) -> bytes:
    """Returns a PNG of four panels. The lower two show time for one result, and batches for
    several."""
    figure = load_matplotlib("matplotlib.figure").Figure(
        figsize=(11, 7.2), dpi=_DPI, facecolor=LIGHT.paper, layout="constrained"
    )
    load_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2)
    _draw_distribution(panels[0, 0], results, "ttft_s", "time to first token, ms")
    _draw_distribution(panels[0, 1], results, "itl_s", "time between two tokens, ms")
    if len(results) == 1:
        _draw_queue(panels[1, 0], results[0])
        _draw_pages(panels[1, 1], results[0])
    else:
        _draw_rates(panels[1, 0], results)
        _draw_limits(panels[1, 1], results)
        lines, names = panels[0, 0].get_legend_handles_labels()
        _legend(figure, lines, names, loc="outside lower center", ncols=4)
    name = f": {results[0].name}" if len(results) == 1 else ", batch x input + output tokens"
    figure.suptitle(picture_text(title + name), color=LIGHT.ink, fontsize=_FONT + 2)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor=LIGHT.paper)
    return picture.getvalue()


def _draw_distribution(panel: Any, results: Sequence[LoadResult], field: str, name: str) -> None:
    """Draws the share of values at or below each value."""
    for number, result in enumerate(results):
        values = sorted(1e3 * value for value in latencies(result.runs, field))
        if values:
            shares = [(place + 1) / len(values) for place in range(len(values))]
            panel.step(
                [values[0], *values],
                [0.0, *shares],
                where="post",
                color=_COLORS[number % len(_COLORS)],
                linestyle=("-", "--", ":")[number // len(_COLORS) % 3],
                linewidth=1.7,
                label=picture_text(result.name),
            )
    for share, label in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99")):
        panel.axhline(share, color=LIGHT.front, linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
        panel.text(
            1.005,
            share,
            label,
            transform=panel.get_yaxis_transform(),
            va="center",
            color=LIGHT.faint,
            fontsize=_FONT - 2,
        )
    ticker = load_matplotlib("matplotlib.ticker")
    panel.set_xscale("log")
    panel.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.set_ylim(0, 1.03)
    _style(panel, name, "share of all")


def _draw_queue(panel: Any, result: LoadResult) -> None:
    moments = _thinned(result.runs[0].moments)
    times = [one.time_s for one in moments]
    panel.step(
        times,
        [one.num_running for one in moments],
        where="post",
        color=BLUE,
        linewidth=1.3,
        label="running",
    )
    panel.step(
        times,
        [one.num_waiting for one in moments],
        where="post",
        color=RED,
        linewidth=1.3,
        label="waiting",
    )
    panel.set_ylim(bottom=0)
    _style(panel, "seconds", "requests")
    _legend(panel)


def _draw_pages(panel: Any, result: LoadResult) -> None:
    moments = _thinned(result.runs[0].moments)
    panel.fill_between(
        [one.time_s for one in moments],
        [100 * one.kv_share for one in moments],
        step="post",
        color=GREEN,
        alpha=0.35,
        linewidth=0,
    )
    panel.set_ylim(bottom=0)
    _style(panel, "seconds", "KV pages held, %")


def _draw_rates(panel: Any, results: Sequence[LoadResult]) -> None:
    rates = [one.summary.output_tokens_per_s for one in results]
    colors = [_COLORS[number % len(_COLORS)] for number in range(len(results))]
    panel.bar(range(len(results)), rates, color=colors, width=0.6, zorder=2)
    _style(panel, "", "output tokens per second")
    _name_places(panel, results)


def _draw_limits(panel: Any, results: Sequence[LoadResult]) -> None:
    for shift, name, color in ((-0.2, "mbu", SKY), (0.2, "mfu", ORANGE)):
        panel.bar(
            [place + shift for place in range(len(results))],
            [100 * getattr(one.summary, name) for one in results],
            color=color,
            width=0.36,
            label=name.upper(),
            zorder=2,
        )
    _style(panel, "", "of the machine's limit, %")
    _name_places(panel, results)
    _legend(panel)


def _name_places(panel: Any, results: Sequence[LoadResult]) -> None:
    is_long = len(results) > 4
    panel.grid(visible=False, axis="x")
    panel.set_xticks(
        range(len(results)),
        [one.name for one in results],
        rotation=30 if is_long else 0,
        ha="right" if is_long else "center",
    )


def _style(panel: Any, x: str, y: str) -> None:
    panel.set_facecolor(LIGHT.paper)
    panel.set_xlabel(x, color=LIGHT.ink, fontsize=_FONT)
    panel.set_ylabel(y, color=LIGHT.ink, fontsize=_FONT)
    panel.grid(visible=True, color=LIGHT.grid, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(colors=LIGHT.faint, labelsize=_FONT - 1, length=0, which="both")
    for side, spine in panel.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(LIGHT.grid)


def _legend(owner: Any, *entries: Any, **place: Any) -> None:
    """Draws the legend of a panel, or of the figure."""
    owner.legend(*entries, frameon=False, fontsize=_FONT - 1, labelcolor=LIGHT.ink, **place)


def _thinned(moments: Sequence[Moment]) -> list[Moment]:
    """Thins moments: each stretch keeps those with the most and the fewest requests, so that peaks
    and pauses stay visible. The last moment is kept too."""
    size = -(-len(moments) // _MAX_POINTS)
    found = []
    for start in range(0, len(moments), size):
        stretch = moments[start : start + size]
        ends = (min(stretch, key=_num_requests), max(stretch, key=_num_requests))
        found += [*sorted(ends, key=lambda one: one.time_s), stretch[-1]]
    return found


def _num_requests(one: Moment) -> int:
    return one.num_waiting + one.num_running
