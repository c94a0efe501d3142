"""Draws a sweep over hidden sizes: times as points, their quadratic fits as lines."""

import io
from pathlib import Path
from typing import Any

from paredown.evaluate.pictures.picture import BLUE, GREEN, LIGHT, PINK, RED, Theme, load_matplotlib
from paredown.evaluate.speed.hidden_sweep import GroupFit, HiddenSweep
from paredown.models.files.whole_file import whole_file
from paredown.units import format_count

_COLOURS = (BLUE, RED, GREEN, PINK)
_MARKERS = ("o", "s", "^", "D")
_DPI = 160
_FONT = 8.5
_LINE_POINTS = 200


def write_hidden_sweep(sweep: HiddenSweep, path: Path) -> None:
    """Writes a PNG. Raises OutputError where it cannot be written."""
    with whole_file(path) as file:
        file.write(draw_hidden_sweep(sweep, LIGHT))


def draw_hidden_sweep(sweep: HiddenSweep, theme: Theme) -> bytes:
    figure = load_matplotlib("matplotlib.figure").Figure(
        figsize=(7.6, 4.8), dpi=_DPI, facecolor=theme.paper, layout="constrained"
    )
    load_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    panel = figure.subplots()
    for fit, colour, marker in zip(sweep.fits, _COLOURS, _MARKERS, strict=True):
        sizes = [hidden for hidden, _ in fit.points]
        low, high = min(sizes), max(sizes)
        line = [low + (high - low) * i / _LINE_POINTS for i in range(_LINE_POINTS + 1)]
        panel.plot(line, [fit.seconds(x) * 1e3 for x in line], color=colour, linewidth=1.4)
        panel.plot(
            sizes,
            [seconds * 1e3 for _, seconds in fit.points],
            linestyle="none",
            marker=marker,
            markersize=5.5,
            color=colour,
            label=f"{fit.group}: {_formula(fit)} us, {fit.mean_error:.0%} off on the mean",
        )
    _style(panel, theme)
    tokens = format_count(sweep.num_tokens, "token")
    threads = format_count(sweep.num_threads, "thread")
    panel.set_title(
        f"products with {sweep.format} weights: {tokens}, {threads}",
        color=theme.ink,
        fontsize=_FONT + 1,
        loc="left",
    )
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor=theme.paper)
    return picture.getvalue()


def _formula(fit: GroupFit) -> str:
    """Formats the fit without zero terms."""
    powers = ("", " d", " d²")
    terms = [
        f"{one * 1e6:.3g}{power}"
        for one, power in zip(fit.coefficients, powers, strict=True)
        if one > 0
    ]
    return " + ".join(terms)


def _style(panel: Any, theme: Theme) -> None:
    panel.set_facecolor(theme.paper)
    panel.grid(visible=True, color=theme.grid, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.set_xlabel("hidden size d", color=theme.ink, fontsize=_FONT + 1)
    panel.set_ylabel("milliseconds", color=theme.ink, fontsize=_FONT + 1)
    panel.tick_params(colors=theme.faint, labelsize=_FONT, length=0)
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    legend = panel.legend(frameon=False, fontsize=_FONT, labelcolor=theme.ink, loc="upper left")
    legend.set_zorder(4)
    for spine in panel.spines.values():
        spine.set_visible(False)
