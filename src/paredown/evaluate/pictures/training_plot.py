"""Draws the losses of a training over the tokens that it read."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paredown.evaluate.pictures.picture import (
    BLUE,
    LIGHT,
    RED,
    SKY,
    Theme,
    load_matplotlib,
    picture_text,
)
from paredown.models.files.whole_file import whole_file

_DPI = 160
_FONT = 8.5
# The smoothed line is a mean over this share of all steps.
_SMOOTHED_SHARE = 0.05

# Tokens and loss.
Point = tuple[int, float]


@dataclass(frozen=True, kw_only=True)
class TrainingCurve:
    """The loss of each step, and that of held-out text where there was some."""

    title: str
    steps: Sequence[Point]
    held_out: Sequence[Point] = ()


def write_training_curve(curve: TrainingCurve, path: Path) -> None:
    """Writes a PNG. Raises OutputError where it cannot be written."""
    with whole_file(path) as file:
        file.write(draw_training_curve(curve, LIGHT))


def draw_training_curve(curve: TrainingCurve, theme: Theme) -> bytes:
    figure = load_matplotlib("matplotlib.figure").Figure(
        figsize=(7.6, 4.2), dpi=_DPI, facecolor=theme.paper, layout="constrained"
    )
    load_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    panel = figure.subplots()
    tokens = [point[0] for point in curve.steps]
    losses = [point[1] for point in curve.steps]
    panel.plot(tokens, losses, color=SKY, linewidth=0.8, alpha=0.6, label="a step")
    panel.plot(tokens, smoothed(losses), color=BLUE, linewidth=1.6, label="mean of steps")
    if curve.held_out:
        _draw_held_out(panel, curve.held_out)
    _style(panel, theme)
    panel.set_title(picture_text(curve.title), color=theme.ink, fontsize=_FONT + 1, loc="left")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", facecolor=theme.paper)
    return picture.getvalue()


def smoothed(losses: Sequence[float]) -> list[float]:
    """Returns the mean of each loss and those before it, over a share of all steps."""
    reach = max(1, round(_SMOOTHED_SHARE * len(losses)))
    found = []
    for index in range(len(losses)):
        near = losses[max(0, index + 1 - reach) : index + 1]
        found.append(math.fsum(near) / len(near))
    return found


def _draw_held_out(panel: Any, points: Sequence[Point]) -> None:
    """Draws the looks at held-out text, the best with a ring."""
    line = {"color": RED, "linewidth": 1.4, "marker": "o", "markersize": 3.5}
    panel.plot([x for x, _ in points], [y for _, y in points], label="held-out text", **line)
    best = min(points, key=lambda point: point[1])
    ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "markeredgecolor": RED}
    panel.plot(best[0], best[1], linestyle="none", label=f"best: {best[1]:.4g}", **ring)


def _style(panel: Any, theme: Theme) -> None:
    panel.set_facecolor(theme.paper)
    panel.grid(visible=True, color=theme.grid, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.set_xlabel("tokens", color=theme.ink, fontsize=_FONT + 1)
    panel.set_ylabel("loss, nats per token", color=theme.ink, fontsize=_FONT + 1)
    panel.tick_params(colors=theme.faint, labelsize=_FONT, length=0)
    panel.set_xlim(left=0)
    panel.legend(frameon=False, fontsize=_FONT, labelcolor=theme.ink, loc="upper right")
    for spine in panel.spines.values():
        spine.set_visible(False)
