"""Draws a sensitivity table and writes the report's folder. Every part has a bar for its cost
alone, and a dot for the gain from leaving it out when everything is quantized."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paredown.evaluate.pictures.picture import (
    BLUE,
    DARK,
    LIGHT,
    RED,
    Theme,
    load_matplotlib,
    picture_text,
    require_matplotlib,
)
from paredown.evaluate.quality.task_quality import TaskQuality
from paredown.models.files.output_folder import check_output_folder, output_folder
from paredown.optimize.sensitivity import (
    AnyQuality,
    Sensitivity,
    SensitivityResult,
    SensitivityTable,
    recovered,
)

_ALONE, _LEFT_OUT = BLUE, RED
_DPI = 160
_FONT = 8.5
_ROW_INCHES = 0.235
_FRAME_INCHES = 1.35
_LEAST_KL = 1e-7


def draw_sensitivity(result: SensitivityResult, *, dark: bool) -> bytes:
    """Returns a PNG with a panel for the weights and, if they were measured, one for
    activations."""
    theme = DARK if dark else LIGHT
    tables = [("weights", result.weights)]
    if result.activations is not None:
        tables.append(("activations", result.activations))
    num_rows = max(len(table.rows) for _, table in tables)
    figure = load_matplotlib("matplotlib.figure").Figure(
        figsize=(5.6 * len(tables), _FRAME_INCHES + _ROW_INCHES * num_rows),
        dpi=_DPI,
        facecolor=theme.paper,
        layout="constrained",
    )
    load_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(tables), squeeze=False)[0]
    for panel, (name, table) in zip(panels, tables, strict=True):
        _draw_panel(panel, name, table, result.plain, theme)
    _legend(figure, theme)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor=theme.paper)
    return picture.getvalue()


def _draw_panel(
    panel: Any, name: str, table: SensitivityTable, plain: AnyQuality, theme: Theme
) -> None:
    rows = _by_kind(table.rows)
    places = [float(-at) for at in range(len(rows))]
    alone = [0.0 if row is None else row.alone.loss - plain.loss for row in rows]
    panel.barh(places, alone, height=0.62, color=_ALONE, zorder=2)
    dots = [(recovered(row, table), y) for row, y in zip(rows, places, strict=True) if row]
    panel.plot(
        [x for x, _ in dots],
        [y for _, y in dots],
        linestyle="none",
        marker="o",
        markersize=5.5,
        markerfacecolor=theme.paper,
        markeredgecolor=_LEFT_OUT,
        markeredgewidth=1.6,
        zorder=3,
    )
    named = [(row.name, y) for row, y in zip(rows, places, strict=True) if row]
    panel.set_yticks([y for _, y in named], labels=[picture_text(label) for label, _ in named])
    panel.set_facecolor(theme.paper)
    panel.grid(visible=True, axis="x", color=theme.grid, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.axvline(0, color=theme.faint, linewidth=0.7, zorder=1)
    panel.tick_params(axis="x", colors=theme.faint, labelsize=_FONT, length=0)
    panel.tick_params(axis="y", labelcolor=theme.ink, labelsize=_FONT, length=0)
    panel.set_xlabel(_measured(plain), color=theme.ink, fontsize=_FONT + 1)
    panel.locator_params(axis="x", nbins=6)
    title = f"{name} in {table.what}; everything: {table.everything.loss - plain.loss:.4g}"
    panel.set_title(picture_text(title), color=theme.ink, fontsize=_FONT + 1, loc="left")
    for spine in panel.spines.values():
        spine.set_visible(False)
    largest = max([_LEAST_KL, *alone, *(x for x, _ in dots)])
    panel.set_xlim(min(0.0, *alone, *(x for x, _ in dots)) - 0.02 * largest, 1.04 * largest)
    panel.set_ylim(places[-1] - 0.7, 0.7)


def _measured(plain: AnyQuality) -> str:
    if isinstance(plain, TaskQuality):
        return f"loss of {plain.metric}"
    return "KL divergence, nats per token"


def _by_kind(rows: Sequence[Sensitivity]) -> list[Sensitivity | None]:
    """Inserts an empty row between parts of different kinds."""
    spaced: list[Sensitivity | None] = []
    for row in rows:
        if spaced and spaced[-1] is not None and spaced[-1].kind != row.kind:
            spaced.append(None)
        spaced.append(row)
    return spaced


def _legend(figure: Any, theme: Theme) -> None:
    patch = load_matplotlib("matplotlib.patches").Patch
    line = load_matplotlib("matplotlib.lines").Line2D
    dot = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": _LEFT_OUT}
    figure.legend(
        handles=[
            patch(color=_ALONE, label="it alone quantized"),
            line([], [], linestyle="none", label="won back by leaving it out", **dot),
        ],
        loc="outside upper center",
        ncols=2,
        frameon=False,
        fontsize=_FONT,
        labelcolor=theme.ink,
    )


def check_report(folder: Path) -> None:
    """Checks the folder before the long work. Raises OutputError if it exists or cannot be made,
    UnsupportedError if nothing can be drawn."""
    check_output_folder(folder)
    require_matplotlib("leave out --report")


def write_report(result: SensitivityResult, folder: Path) -> None:
    """Writes `sensitivity.png`, a dark version of it, and `sensitivity.json`."""
    light, dark = draw_sensitivity(result, dark=False), draw_sensitivity(result, dark=True)
    with output_folder(folder) as partial:
        (partial / "sensitivity.png").write_bytes(light)
        (partial / "sensitivity-dark.png").write_bytes(dark)
        figures = json.dumps(result.as_json(), indent=2) + "\n"
        (partial / "sensitivity.json").write_text(figures, "utf-8")
