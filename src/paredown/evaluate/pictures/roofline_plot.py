"""Draws a machine's roofline with a model's operations, as PNG or as an HTML page."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paredown.cost.inspection import PHASES, Inspection
from paredown.cost.model_formats import Unit
from paredown.cost.operation import OperationCost
from paredown.cost.roofline import Roofs, best_time
from paredown.evaluate.pictures.labels import Box, around, place_labels
from paredown.evaluate.pictures.picture import (
    BLUE,
    DARK,
    LIGHT,
    RED,
    Theme,
    load_matplotlib,
    picture_text,
)
from paredown.models.files.whole_file import whole_file
from paredown.shown import shown
from paredown.units import GIGA, TERA, format_bytes

_DPI = 160
_FONT = 8.5
_COLOURS = {"prefill": RED, "decode": BLUE}
_MARKERS = {"prefill": "o", "decode": "s"}
_UNITS: tuple[Unit, ...] = ("int8", "bf16", "fp32")
# The smallest range of intensities that a plot shows.
_LEAST_INTENSITY, _MOST_INTENSITY = 0.3, 3000.0
# Operations closer than this factor in both directions share a label.
_SAME = 1.12
_MARKER_POINTS = 6.5
_SLOPE_BOXES = 160


def write_roofline(found: Inspection, name: str, path: Path) -> None:
    """Writes the plot to `path`, which ends in .png or .html. Raises OutputError where nothing can
    be written."""
    light = draw_roofline(found, name, dark=False)
    data = light
    if path.suffix == ".html":
        data = _page(name, light, draw_roofline(found, name, dark=True)).encode()
    with whole_file(path) as file:
        file.write(data)


def draw_roofline(found: Inspection, name: str, *, dark: bool) -> bytes:
    """Returns a PNG. Lines are roofs. A point is an operation at its predicted speed; it is hollow
    and on its roof where nothing was measured."""
    theme = DARK if dark else LIGHT
    figure = load_matplotlib("matplotlib.figure").Figure(
        figsize=(8.6, 5.4), dpi=_DPI, facecolor=theme.paper, layout="constrained"
    )
    canvas = load_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    panel = figure.subplots()
    roofs = found.roofs
    points = {phase: _points(found, phase) for phase in PHASES}
    every = [point for listed in points.values() for point in listed]
    low = min(_LEAST_INTENSITY, *(0.6 * one.x for one in every))
    high = max(_MOST_INTENSITY, *(1.6 * one.x for one in every))
    _style(panel, theme, all(one.known for one in every))
    roof_labels = _draw_roofs(panel, found, (low, high), theme)
    panel.set_xlim(low, high)
    panel.set_ylim(0.25 * min(one.y for one in every), 3 * roofs.peak("int8"))
    for phase, listed in points.items():
        _draw_points(panel, phase, listed, theme)
    _draw_legend(figure, found, name, theme)
    canvas.draw()
    ends = (low, max(roofs.ridge(unit) for unit in _units(found)))
    slope = [box for one in (roofs, found.machine.roofs) for box in _slope_boxes(panel, one, ends)]
    _draw_labels(panel, points, [*slope, *_boxes(roof_labels)], theme)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor=theme.paper)
    return picture.getvalue()


def _draw_legend(figure: Any, found: Inspection, name: str, theme: Theme) -> None:
    workload = found.batch_load
    titles = {
        "prefill": f"prefill, {workload.prompt_tokens:,} tokens",
        "decode": f"decode, batch {workload.batch}, context {workload.context:,}",
    }
    line = load_matplotlib("matplotlib.lines").Line2D
    figure.legend(
        handles=[
            line(
                [], [], linestyle="none", marker=_MARKERS[phase], color=_COLOURS[phase], label=title
            )
            for phase, title in titles.items()
        ],
        loc="outside upper center",
        ncols=2,
        frameon=False,
        fontsize=_FONT,
        labelcolor=theme.ink,
        title=picture_text(f"{name}, {found.formats.name} on {found.machine.roofs.name}"),
        title_fontproperties={"size": _FONT + 1},
    )
    figure.legends[0].get_title().set_color(theme.ink)


class _Point:
    def __init__(self, names: list[str], x: float, y: float, known: bool) -> None:
        self.names, self.x, self.y, self.known = names, x, y, known

    def is_near(self, x: float, y: float) -> bool:
        return max(x / self.x, self.x / x, y / self.y, self.y / y) < _SAME

    @property
    def label(self) -> str:
        return ", ".join(self.names)


def _points(found: Inspection, phase: str) -> list[_Point]:
    """Returns the points, with coinciding operations merged."""
    points: list[_Point] = []
    for cost, seconds in zip(found.operations[phase], found.operation_s[phase], strict=True):
        if not cost.flops:
            continue
        best_s = best_time(cost, found.roofs).seconds
        x, y = cost.intensity, cost.flops / (seconds or best_s)
        near = next((one for one in points if one.is_near(x, y)), None)
        if near is None:
            points.append(_Point([cost.operation.name], x, y, seconds is not None))
        else:
            near.names.append(cost.operation.name)
    return points


def _units(found: Inspection) -> list[Unit]:
    used = {cost.operation.unit for cost in _with_flops(found)}
    return [unit for unit in _UNITS if unit in used]


def _with_flops(found: Inspection) -> list[OperationCost]:
    return [cost for phase in PHASES for cost in found.operations[phase] if cost.flops]


def _style(panel: Any, theme: Theme, is_known: bool) -> None:
    panel.set_facecolor(theme.paper)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.grid(visible=True, color=theme.grid, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.tick_params(colors=theme.faint, labelsize=_FONT, length=0, which="both")
    hollow = "" if is_known else " (hollow: at best, on its roof; nothing was measured)"
    panel.set_xlabel(f"operations per byte{hollow}", color=theme.ink, fontsize=_FONT + 1)
    panel.set_ylabel("operations per second", color=theme.ink, fontsize=_FONT + 1)
    for spine in panel.spines.values():
        spine.set_visible(False)


def _draw_roofs(
    panel: Any, found: Inspection, limits: tuple[float, float], theme: Theme
) -> list[Any]:
    """Draws the roofs and returns the texts beside them. If a model of this size is read faster
    than memory, the roof is that bandwidth, and memory's own is a dashed line below it."""
    roofs, units = found.roofs, _units(found)
    low, high = limits
    bandwidth = roofs.bandwidth_bytes_per_s
    highest = max(roofs.ridge(unit) for unit in units)
    panel.plot(
        [low, highest], [low * bandwidth, highest * bandwidth], color=theme.ink, linewidth=1.5
    )
    middle = (low * highest) ** 0.5
    label = f"memory, {bandwidth / GIGA:,.1f} GB/s"
    behind = found.machine.roofs.bandwidth_bytes_per_s
    if bandwidth > behind:
        label = f"{format_bytes(found.memory.weights)} in caches, {bandwidth / GIGA:,.1f} GB/s"
        panel.plot(
            [low, highest],
            [low * behind, highest * behind],
            color=theme.faint,
            linewidth=1,
            linestyle="--",
        )
        panel.annotate(
            f"memory, {behind / GIGA:,.1f} GB/s",
            (highest, highest * behind),
            xytext=(6, -3),
            textcoords="offset points",
            color=theme.faint,
            fontsize=_FONT,
        )
    texts = [
        panel.annotate(
            label,
            (middle, middle * bandwidth),
            xytext=(-6, 8),
            textcoords="offset points",
            ha="right",
            color=theme.ink,
            fontsize=_FONT,
        )
    ]
    for unit in units:
        peak = roofs.peak(unit)
        panel.plot([roofs.ridge(unit), high], [peak, peak], color=theme.ink, linewidth=1.5)
        texts.append(
            panel.annotate(
                f"{unit}, {peak / TERA:,.2f} T/s",
                (high, peak),
                xytext=(-4, 4),
                textcoords="offset points",
                ha="right",
                color=theme.ink,
                fontsize=_FONT,
            )
        )
    return texts


def _boxes(texts: Sequence[Any]) -> list[Box]:
    extents = [text.get_window_extent() for text in texts]
    return [Box(left=one.x0, bottom=one.y0, right=one.x1, top=one.y1) for one in extents]


def _draw_points(panel: Any, phase: str, points: Sequence[_Point], theme: Theme) -> None:
    colour = _COLOURS[phase]
    for one in points:
        panel.plot(
            [one.x],
            [one.y],
            linestyle="none",
            marker=_MARKERS[phase],
            markersize=_MARKER_POINTS,
            markerfacecolor=colour if one.known else theme.paper,
            markeredgecolor=colour,
            markeredgewidth=1.5,
            zorder=3,
        )


def _draw_labels(
    panel: Any, points: Mapping[str, Sequence[_Point]], roof: Sequence[Box], theme: Theme
) -> None:
    """Places labels beside their points and off the roofs, with a thin line where one had to move
    away."""
    listed = [(phase, one) for phase, several in points.items() for one in several]
    texts = [
        panel.text(
            one.x,
            one.y,
            one.label,
            color=_COLOURS[phase],
            fontsize=_FONT - 0.5,
            ha="center",
            va="center",
            zorder=4,
        )
        for phase, one in listed
    ]
    boxes = [text.get_window_extent() for text in texts]
    frame = panel.get_window_extent()
    pixels = [tuple(panel.transData.transform((one.x, one.y))) for _, one in listed]
    radius = _MARKER_POINTS / 2 * _DPI / 72
    places = place_labels(
        pixels,
        [(box.width, box.height) for box in boxes],
        Box(left=frame.x0, bottom=frame.y0, right=frame.x1, top=frame.y1),
        roof,
        marker_radius=radius,
        scale=_DPI / 100,
    )
    to_data = panel.transData.inverted()
    for text, place, pixel, (_, one) in zip(texts, places, pixels, listed, strict=True):
        centre = ((place.left + place.right) / 2, (place.bottom + place.top) / 2)
        text.set_position(to_data.transform(centre))
        near = (
            min(max(pixel[0], place.left), place.right),
            min(max(pixel[1], place.bottom), place.top),
        )
        if not around(near[0], near[1], 1).overlap(around(pixel[0], pixel[1], 2.2 * radius)):
            x, y = to_data.transform(near)
            panel.plot([one.x, x], [one.y, y], color=theme.faint, linewidth=0.7, zorder=2)


def _slope_boxes(panel: Any, roofs: Roofs, limits: tuple[float, float]) -> list[Box]:
    """Returns the pixels of the memory roof as a chain of small boxes."""
    low, high = limits
    boxes = []
    for i in range(_SLOPE_BOXES + 1):
        x = low * (high / low) ** (i / _SLOPE_BOXES)
        pixel = panel.transData.transform((x, x * roofs.bandwidth_bytes_per_s))
        boxes.append(around(pixel[0], pixel[1], 4))
    return boxes


def _page(name: str, light: bytes, dark: bytes) -> str:
    def source(picture: bytes) -> str:
        return "data:image/png;base64," + base64.b64encode(picture).decode()

    title = html.escape(shown(f"Roofline of {name}"))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        "<style>body{margin:2rem auto;max-width:70rem;background:#fff}img{width:100%}"
        "@media(prefers-color-scheme:dark){body{background:#151b23}}</style>"
        '<picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="{source(dark)}"><img alt="{title}" src="{source(light)}"></picture></html>\n'
    )
