"""The picture of a training: each step, their mean, and the best look at held-out text."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from paredown.evaluate.pictures.picture import DARK, LIGHT
from paredown.evaluate.pictures.training_plot import (
    TrainingCurve,
    draw_training_curve,
    smoothed,
    write_training_curve,
)

STEPS = [(100 * step, 5.0 / step) for step in range(1, 61)]
HELD_OUT = [(0, 5.0), (3000, 2.0), (6000, 3.0)]


def test_all_points_are_drawn_and_the_best_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[Any, Any, str]] = []
    plot = Axes.plot

    def recorded(self: Axes, x: Any, y: Any, **how: Any) -> Any:
        drawn.append((x, y, how["label"]))
        return plot(self, x, y, **how)

    monkeypatch.setattr(Axes, "plot", recorded)
    curve = TrainingCurve(title="$kl$ of every-2", steps=STEPS, held_out=HELD_OUT)
    for theme in (LIGHT, DARK):
        assert draw_training_curve(curve, theme).startswith(b"\x89PNG")
    names = [name for _, _, name in drawn[:4]]
    assert names == ["a step", "mean of steps", "held-out text", "best: 2"]
    assert drawn[0][:2] == ([x for x, _ in STEPS], [y for _, y in STEPS])
    assert drawn[2][:2] == ([0, 3000, 6000], [5.0, 2.0, 3.0])
    assert drawn[3][:2] == (3000, 2.0)


def test_without_held_out_text_the_steps_are_drawn(tmp_path: Path) -> None:
    write_training_curve(TrainingCurve(title="kl", steps=STEPS[:1]), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_mean_is_over_what_was_there() -> None:
    losses = [float(step) for step in range(60)]
    found = smoothed(losses)
    assert found[:3] == [0.0, 0.5, 1.0]
    assert found[-1] == pytest.approx(58.0)
    assert smoothed([]) == []
    assert smoothed([7.0]) == [7.0]
