"""The roofline with operations on it: where points and roofs lie, and what the page holds."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from fakes.specs import gated
from paredown.cost.inspection import PHASES, Inspection, inspect_model
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.machines import MACHINES
from paredown.cost.model_formats import ModelFormats
from paredown.cost.roofline import best_time
from paredown.cost.serving import BatchLoad
from paredown.evaluate.pictures import roofline_plot
from paredown.evaluate.pictures.roofline_plot import draw_roofline, write_roofline
from paredown.spec.weight import WeightSpec

SPEC = gated(hidden_size=256, head_dim=64, intermediate_size=768, max_positions=4096)
INT4 = WeightSpec(dtype="int4", group_size=32)


def inspected(key: str) -> Inspection:
    formats = ModelFormats(linear=INT4, output=WeightSpec(dtype="bf16"))
    profile = MachineProfile(key=key, roofs=MACHINES[key])
    return inspect_model(SPEC, formats, BatchLoad(batch=4, context=512), profile)


@pytest.mark.parametrize("key", ["h100", "xeon-emr"])
@pytest.mark.parametrize("phase", PHASES)
def test_points_lie_on_their_roofs_or_below(key: str, phase: str) -> None:
    """Hollow ones, of which nothing is known, on them; all names are there once."""
    found = inspected(key)
    points = roofline_plot._points(found, phase)
    costs = {cost.operation.name: cost for cost in found.operations[phase] if cost.flops}
    assert sorted(name for one in points for name in one.names) == sorted(costs)
    for one in points:
        assert one.known == (key == "h100")
        for name in one.names:
            cost = costs[name]
            roof = cost.flops / best_time(cost, found.roofs).seconds
            assert cost.intensity == pytest.approx(one.x, rel=0.12)
            if one.known:
                assert one.y <= 1.12 * roof
            else:
                assert one.y == pytest.approx(roof, rel=0.12)
    for index, one in enumerate(points):
        assert not any(one.is_near(other.x, other.y) for other in points[:index])


def test_what_lies_on_each_other_shares_a_label() -> None:
    point = roofline_plot._Point(["q"], 2.0, 1e9, True)
    for x, y, near in (
        (2.0, 1e9, True),
        (2.2, 1.1e9, True),
        (1.8, 0.91e9, True),
        (2.3, 1e9, False),
    ):
        assert point.is_near(x, y) == near
    assert not point.is_near(2.0, 0.8e9)
    point.names.append("k")
    assert point.label == "q, k"


@pytest.mark.parametrize("key", ["h100", "xeon-emr"])
def test_roofs_rise_with_the_bandwidth_up_to_each_peak(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[list[float], list[float]]] = []
    plot = Axes.plot

    def recorded(self: Axes, x: list[float], y: list[float], **how: Any) -> Any:
        drawn.append((x, y))
        return plot(self, x, y, **how)

    monkeypatch.setattr(Axes, "plot", recorded)
    found = inspected(key)
    assert draw_roofline(found, "toy", dark=False).startswith(b"\x89PNG")
    roofs = found.roofs
    slopes = next((x, y) for x, y in drawn if len(x) == 2 and y[0] != y[1])
    assert [y / x for x, y in zip(*slopes, strict=True)] == pytest.approx(
        [roofs.bandwidth_bytes_per_s] * 2
    )
    flat = {y[0]: x[0] for x, y in drawn if len(x) == 2 and y[0] == y[1]}
    units = roofline_plot._units(found)
    assert set(flat) == {roofs.peak(unit) for unit in units}
    for unit in units:
        assert flat[roofs.peak(unit)] * roofs.bandwidth_bytes_per_s == pytest.approx(
            roofs.peak(unit)
        )


def test_a_page_holds_both_themes_and_no_name_gets_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures themselves take seconds to draw."""
    monkeypatch.setattr(
        roofline_plot, "draw_roofline", lambda _, name, dark: f"{name} {dark}".encode()
    )
    found, name = inspected("xeon-emr"), "<script>alert(1)</script>"
    write_roofline(found, name, tmp_path / "roofline.html")
    page = (tmp_path / "roofline.html").read_text()
    assert "<script" not in page
    assert "http" not in page
    pictures = [base64.b64decode(one) for one in re.findall(r"base64,([\w+/=]+)", page)]
    dark, light = pictures
    assert (light, dark) == (f"{name} False".encode(), f"{name} True".encode())
    write_roofline(found, name, tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").read_bytes() == light
