"""Draws the Pareto front: lost quality against file size and against decode speed."""

import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paredown.evaluate.pictures.labels import Box, around, place_labels
from paredown.evaluate.pictures.picture import (
    BLUE,
    DARK,
    GREEN,
    LIGHT,
    ORANGE,
    PINK,
    RED,
    SKY,
    Theme,
    load_matplotlib,
    picture_text,
)
from paredown.evaluate.quality.measurement import Measurement
from paredown.optimize.choose import lost_share
from paredown.units import MEGA

# Shapes repeat the information of the colours.
_FAMILIES = {
    "float": (BLUE, "s"),
    "fp8": (SKY, "D"),
    "int8": (RED, "^"),
    "int5, int6, int7": (ORANGE, "v"),
    "int4": (GREEN, "o"),
    "int1, int2, int3": (PINK, "P"),
}
_DPI = 160
_MARKER_POINTS = 8.5
_FONT = 8.5


# The ends of a horizontal or vertical line.
Line = tuple[tuple[float, float], tuple[float, float]]


# The height of the picture if no candidate loses anything and no loss is allowed.
_LEAST_PERCENT = 0.01
# By whether the model is an encoder.
_SPEED_TITLE = ("decode speed, tokens per second", "speed, texts per second")
_LOSS_TITLE = ("perplexity above the original", "mean cosine to the original, below 1")


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """The x axis of one panel; `better` is the end with the better points."""

    title: str
    values: list[float]
    better: str


def draw_front(
    candidates: Sequence[Measurement],
    reference: Measurement,
    chosen: str | None,
    allowed_loss: float | None,
    *,
    dark: bool,
) -> bytes:
    """Returns a PNG of two panels. `allowed_loss` is that of perplexity, or of an encoder's mean
    cosine; None allows none. Points on the front are filled; the chosen one has a ring. A candidate
    with an infinite perplexity is left out."""
    candidates = [one for one in candidates if math.isfinite(_loss_percent(one, reference))]
    is_encoder = reference.cosine_mean is not None
    allowed = 100 * (allowed_loss or 0.0)
    theme = DARK if dark else LIGHT
    figure = load_matplotlib("matplotlib.figure").Figure(
        figsize=(11, 5.4), dpi=_DPI, facecolor=theme.paper, layout="constrained"
    )
    canvas = load_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    losses = [_loss_percent(one, reference) for one in candidates]
    sizes = [one.file_bytes / MEGA for one in candidates]
    speeds = [one.decode_tokens_per_s or one.texts_per_s or 0.0 for one in candidates]
    panels = figure.subplots(1, 2, sharey=True)
    axes = (
        _Axis(title="weights on disk, MB", values=sizes, better="left"),
        _Axis(title=_SPEED_TITLE[is_encoder], values=speeds, better="right"),
    )
    stairs: list[list[Line]] = []
    for panel, axis in zip(panels, axes, strict=True):
        _style(panel, axis, theme)
        _limits(panel, axis.values, losses, allowed)
        _draw_allowed(panel, allowed, theme)
        stairs.append(_draw_staircase(panel, axis, losses, theme))
        for one, x, loss in zip(candidates, axis.values, losses, strict=True):
            _draw_point(panel, one, (x, loss), one.name == chosen, theme)
    panels[0].set_ylabel(
        f"{_LOSS_TITLE[is_encoder]}, % (root scale)", color=theme.ink, fontsize=_FONT + 1
    )
    _legend(figure, theme)
    canvas.draw()
    for panel, axis, lines in zip(panels, axes, stairs, strict=True):
        level = [((0.0, y), (max(axis.values, default=1.0) * 2, y)) for y in (0.0, allowed)]
        points = list(zip(axis.values, losses, strict=True))
        _label(panel, canvas, points, candidates, chosen, theme, lines + level)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor=theme.paper)
    return picture.getvalue()


def _loss_percent(one: Measurement, reference: Measurement) -> float:
    return 100 * lost_share(one, reference)


def _style(panel: Any, axis: _Axis, theme: Theme) -> None:
    panel.set_facecolor(theme.paper)
    panel.set_xlabel(axis.title, color=theme.ink, fontsize=_FONT + 1)
    panel.grid(visible=True, color=theme.grid, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.tick_params(colors=theme.faint, labelsize=_FONT, length=0)
    for side, spine in panel.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.grid)
    at_left = axis.better == "left"
    panel.text(
        0.0 if at_left else 1.0,
        1.02,
        "\N{LEFTWARDS ARROW} smaller" if at_left else "faster \N{RIGHTWARDS ARROW}",
        transform=panel.transAxes,
        ha=axis.better,
        va="bottom",
        color=theme.faint,
        fontsize=_FONT,
    )


def _limits(panel: Any, values: Sequence[float], losses: Sequence[float], allowed: float) -> None:
    """Sets limits with room for labels on every side. x is linear from zero; y follows the square
    root, since the interesting points are near zero."""
    panel.set_xlim(0, max(values, default=1.0) * 1.18)
    panel.set_yscale("function", functions=(_signed_root, _signed_square))
    ends = [0.0, allowed * 1.2, *losses]
    low, high = _signed_root([min(ends), max(*ends, _LEAST_PERCENT)])
    margin = 0.12 * (high - low)
    bottom, top = _signed_square([low - margin, high + margin])
    panel.set_ylim(bottom, top)
    steps = [digit * 10.0**power for power in range(-2, 6) for digit in (1, 2, 5)]
    ticks = [sign * step for sign in (-1, 1) for step in steps if bottom <= sign * step <= top]
    apart = 0.06 * (high - low + 2 * margin)
    kept = [0.0]
    for tick in sorted(ticks, key=abs):
        if all(abs(_signed_root(tick) - _signed_root(other)) > apart for other in kept):
            kept.append(tick)
    panel.set_yticks(kept, [f"{tick:g}" for tick in kept])


def _signed_root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))


def _signed_square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def _draw_allowed(panel: Any, allowed: float, theme: Theme) -> None:
    panel.axhspan(panel.get_ylim()[0], allowed, color=theme.shade, zorder=0)
    panel.axhline(allowed, color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    panel.axhline(0, color=theme.faint, linewidth=0.7, zorder=1)


def _draw_staircase(panel: Any, axis: _Axis, losses: Sequence[float], theme: Theme) -> list[Line]:
    """Draws the front of this panel's two figures as steps; returns their segments."""
    sign = 1 if axis.better == "left" else -1
    points = sorted((sign * x, loss) for x, loss in zip(axis.values, losses, strict=True))
    best: list[tuple[float, float]] = []
    for x, loss in points:
        if not best or loss < best[-1][1]:
            best.append((sign * x, loss))
    corners = best[:1]
    for x, loss in best[1:]:
        corners += [(x, corners[-1][1]), (x, loss)]
    panel.plot(
        [x for x, _ in corners],
        [y for _, y in corners],
        color=theme.front,
        linewidth=1.8,
        zorder=1.5,
    )
    return list(itertools.pairwise(corners))


def _draw_point(
    panel: Any, one: Measurement, point: tuple[float, float], chosen: bool, theme: Theme
) -> None:
    colour, shape = _FAMILIES[_family(one)]
    if chosen:
        panel.plot(
            *point,
            marker="o",
            markersize=_MARKER_POINTS * 2,
            color="none",
            markeredgecolor=theme.ink,
            markeredgewidth=1.6,
            zorder=3,
        )
    panel.plot(
        *point,
        marker=shape,
        markersize=_MARKER_POINTS,
        color="none",
        markerfacecolor=colour if one.on_front else theme.paper,
        markeredgecolor=colour,
        markeredgewidth=1.6,
        zorder=4,
    )


def _family(one: Measurement) -> str:
    return next((family for family in _FAMILIES if one.linear_dtype in family), "float")


def _legend(figure: Any, theme: Theme) -> None:
    line = load_matplotlib("matplotlib.lines").Line2D
    entries: list[tuple[dict[str, object], str]] = [
        ({"marker": shape, "markerfacecolor": colour, "markeredgecolor": colour}, name)
        for name, (colour, shape) in _FAMILIES.items()
    ]
    hollow: dict[str, object] = {
        "marker": "o",
        "markerfacecolor": "none",
        "markeredgecolor": theme.faint,
    }
    entries.append((hollow, "hollow: not on the 3-way front"))
    entries.append((hollow | {"markersize": _MARKER_POINTS * 1.5}, "ring: chosen"))
    handles = [
        line([], [], linestyle="none", label=label, **({"markersize": 7} | style))
        for style, label in entries
    ]
    dashed = line([], [], color=theme.faint, linestyle=(0, (4, 3)), label="loss allowed")
    front = line([], [], color=theme.front, linewidth=1.8, label="front of the panel")
    figure.legend(
        handles=[*handles, front, dashed],
        loc="outside upper center",
        ncols=(len(handles) + 3) // 2,
        frameon=False,
        fontsize=_FONT,
        labelcolor=theme.ink,
    )


def _label(
    panel: Any,
    canvas: Any,
    points: list[tuple[float, float]],
    candidates: Sequence[Measurement],
    chosen: str | None,
    theme: Theme,
    lines: list[Line],
) -> None:
    """Puts names beside their points, off the `lines`; a thin line connects names that stand
    away."""
    pixels = [(float(x), float(y)) for x, y in panel.transData.transform(points)]
    style = {"fontsize": _FONT, "color": theme.ink, "ha": "center", "va": "center", "zorder": 5}
    texts = [panel.text(0, 0, picture_text(one.name), **style) for one in candidates]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    bounds = panel.get_window_extent()
    frame = Box(left=bounds.x0, bottom=bounds.y0, right=bounds.x1, top=bounds.y1)
    radius = _MARKER_POINTS * _DPI / 72 / 2 + 2
    obstacles = [_thin_box(*panel.transData.transform(line)) for line in lines]
    for one, pixel in zip(candidates, pixels, strict=True):
        if one.name == chosen:
            obstacles.append(around(*pixel, 2 * radius))
    places = place_labels(
        pixels,
        [(box.width, box.height) for box in boxes],
        frame,
        obstacles,
        marker_radius=radius,
        scale=_DPI / 100,
    )
    to_data = panel.transData.inverted()
    for text, place, pixel, point in zip(texts, places, pixels, points, strict=True):
        centre = ((place.left + place.right) / 2, (place.bottom + place.top) / 2)
        text.set_position(to_data.transform(centre))
        near = (
            min(max(pixel[0], place.left), place.right),
            min(max(pixel[1], place.bottom), place.top),
        )
        if not around(*near, 1).overlap(around(*pixel, 2.2 * radius)):
            x, y = to_data.transform(near)
            panel.plot([point[0], x], [point[1], y], color=theme.faint, linewidth=0.7, zorder=2)


def _thin_box(start: Sequence[float], end: Sequence[float]) -> Box:
    """Returns the pixels of a horizontal or vertical line."""
    return Box(
        left=min(start[0], end[0]) - 1.5,
        bottom=min(start[1], end[1]) - 1.5,
        right=max(start[0], end[0]) + 1.5,
        top=max(start[1], end[1]) + 1.5,
    )
