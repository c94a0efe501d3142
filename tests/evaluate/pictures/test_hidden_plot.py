"""The picture of a sweep over hidden sizes: points, lines through them, and their names."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from paredown.evaluate.pictures import hidden_plot
from paredown.evaluate.pictures.hidden_plot import draw_hidden_sweep, write_hidden_sweep
from paredown.evaluate.pictures.picture import DARK, LIGHT
from paredown.evaluate.speed.hidden_sweep import GROUPS, GroupFit, HiddenSweep

POINTS = ((256, 1e-3), (512, 3e-3), (1024, 9e-3))


def sweep() -> HiddenSweep:
    fits = tuple(
        GroupFit(
            group=group,
            points=tuple((size, (1 + number) * seconds) for size, seconds in POINTS),
            coefficients=(1e-4 * number, 0.0, 2e-9),
            mean_error=0.125,
        )
        for number, group in enumerate(GROUPS)
    )
    return HiddenSweep(format="bf16", num_tokens=1, num_threads=2, fits=fits)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[float], list[float], dict[str, Any]]]:
    """What is drawn, as it is drawn."""
    found: list[tuple[list[float], list[float], dict[str, Any]]] = []
    plot = Axes.plot

    def recorded(self: Axes, x: list[float], y: list[float], **how: Any) -> Any:
        found.append((list(x), list(y), how))
        return plot(self, x, y, **how)

    monkeypatch.setattr(Axes, "plot", recorded)
    return found


def test_points_are_milliseconds_and_lines_go_over_all_sizes(
    lines: list[tuple[list[float], list[float], dict[str, Any]]],
) -> None:
    assert draw_hidden_sweep(sweep(), LIGHT).startswith(b"\x89PNG")
    for number, (group, fit) in enumerate(zip(GROUPS, sweep().fits, strict=True)):
        (x, y, how), (sizes, times, marks) = lines[2 * number : 2 * number + 2]
        assert (x[0], x[-1]) == (256, 1024)
        assert y == pytest.approx([1e3 * fit.seconds(one) for one in x])
        assert sizes == [256, 512, 1024]
        assert times == pytest.approx([1 + number, 3 * (1 + number), 9 * (1 + number)])
        assert how["color"] == marks["color"]
        assert marks["label"].startswith(f"{group}: ")
        assert marks["label"].endswith("us, 12% off on the mean")
    assert len({how["color"] for _, _, how in lines}) == len(GROUPS)


@pytest.mark.parametrize(
    ("coefficients", "words"),
    [
        ((2e-6, 0.0, 3e-12), "2 + 3e-06 d²"),
        ((0.0, 1.5e-6, 0.0), "1.5 d"),
        ((1e-6, 2e-6, 3e-6), "1 + 2 d + 3 d²"),
    ],
)
def test_a_formula_is_in_microseconds_without_what_is_0(
    coefficients: tuple[float, float, float], words: str
) -> None:
    fit = GroupFit(group="qkv", points=POINTS, coefficients=coefficients, mean_error=0.0)
    assert hidden_plot._formula(fit) == words


def test_a_file_has_the_picture_of_the_light_theme(tmp_path: Path) -> None:
    write_hidden_sweep(sweep(), tmp_path / "hidden.png")
    light, dark = (draw_hidden_sweep(sweep(), theme) for theme in (LIGHT, DARK))
    assert (tmp_path / "hidden.png").read_bytes() == light != dark
