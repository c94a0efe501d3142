"""Draws a simulation: the time of answers, the number of requests, and the use of pages."""

import io
from pathlib import Path
from typing import Any

from paredown.evaluate.pictures.picture import (
    BLUE,
    GREEN,
    LIGHT,
    ORANGE,
    RED,
    Theme,
    load_matplotlib,
    picture_text,
    require_matplotlib,
)
from paredown.models.files.whole_file import whole_file
from paredown.plan.simulation import Distribution, LatencyLimits, Simulation

_DPI = 150
_NUM_POINTS = 400


def write_simulation_plot(found: Simulation, limits: LatencyLimits, title: str, path: Path) -> None:
    """Writes a PNG. Raises UnsupportedError without matplotlib, OutputError if it cannot be
    written."""
    require_matplotlib("leave --plot out")
    data = draw_simulation(found, limits, title)
    with whole_file(path) as file:
        file.write(data)


def draw_simulation(found: Simulation, limits: LatencyLimits, title: str) -> bytes:
    theme = LIGHT
    figure = load_matplotlib("matplotlib.figure").Figure(
        figsize=(10, 4.2), dpi=_DPI, facecolor=theme.paper, layout="constrained"
    )
    load_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    figure.suptitle(picture_text(title), x=0.01, ha="left", color=theme.ink, fontsize=11)
    latency, queue = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1, 1.4)})
    _draw_latencies(latency, found, limits, theme)
    _draw_queue(queue, found, theme)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor=theme.paper)
    return picture.getvalue()


def _draw_latencies(panel: Any, found: Simulation, limits: LatencyLimits, theme: Theme) -> None:
    """Draws the share of requests that took at most a given time; a limit is a dotted line."""
    for name, one, limit_s, colour in (
        ("to the first token", found.ttft, limits.ttft_s, ORANGE),
        ("to the last token", found.e2e, limits.e2e_s, BLUE),
    ):
        if one.sorted_s:
            shares, seconds = _curve(one)
            panel.plot(seconds, shares, color=colour, label=name)
        if limit_s is not None:
            panel.axvline(limit_s, color=colour, linestyle=":", linewidth=1)
    panel.axhline(95, color=theme.faint, linestyle=":", linewidth=1)
    panel.set_xscale("log")
    ticker = load_matplotlib("matplotlib.ticker")
    panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: _seconds(x)))
    panel.set_ylim(0, 101)
    panel.set_xlabel("from arrival", color=theme.ink)
    panel.set_ylabel("% of requests (dotted: 95 %, limits)", color=theme.ink)
    _style(panel, theme)
    _add_legend(panel, panel.get_lines()[::-1], theme)


def _seconds(value: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if value >= 0.999 * scale:
            return f"{value / scale:,.0f} {unit}"
    return f"{value / 1e-6:,.0f} us"


def _draw_queue(panel: Any, found: Simulation, theme: Theme) -> None:
    """Draws the requests and pages of all machines together."""
    times = [one.time_s for one in found.moments]
    running = [one.num_running for one in found.moments]
    waiting = [one.num_waiting for one in found.moments]
    panel.fill_between(times, running, color=BLUE, alpha=0.25, linewidth=0, step="post")
    panel.step(times, running, where="post", color=BLUE, linewidth=0.7, label="requests running")
    panel.step(times, waiting, where="post", color=RED, linewidth=0.7, label="requests waiting")
    panel.set_ylim(0, 1.05 * max((*running, *waiting, 1)))
    panel.set_xlabel("seconds", color=theme.ink)
    panel.set_ylabel("requests", color=theme.ink)
    _style(panel, theme)
    pages = panel.twinx()
    shares = [100 * one.kv_share for one in found.moments]
    pages.step(times, shares, where="post", color=GREEN, linewidth=1, label="KV pages held, %")
    pages.set_ylim(0, 105)
    pages.set_ylabel("% of pages", color=theme.ink)
    _style(pages, theme)
    pages.grid(visible=False)
    _add_legend(panel, [*panel.get_lines(), *pages.get_lines()], theme)


def _add_legend(panel: Any, lines: list[Any], theme: Theme) -> None:
    """Adds a legend above the panel, where no line is."""
    named = [one for one in lines if not one.get_label().startswith("_")]
    panel.legend(
        named,
        [one.get_label() for one in named],
        frameon=False,
        fontsize=8.5,
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.99),
        ncols=3,
        labelcolor=theme.ink,
    )


def _style(panel: Any, theme: Theme) -> None:
    panel.set_facecolor(theme.paper)
    panel.grid(visible=True, color=theme.grid, linewidth=0.8)
    panel.tick_params(colors=theme.faint, labelsize=8.5)
    for spine in panel.spines.values():
        spine.set_color(theme.grid)


def _curve(one: Distribution) -> tuple[list[float], list[float]]:
    shares = [(number + 1) / _NUM_POINTS for number in range(_NUM_POINTS)]
    return [100 * share for share in shares], [one.quantile(share) for share in shares]
