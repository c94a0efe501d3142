"""Labels beside their points: boxes against pixels, and places that nothing covers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paredown.evaluate.pictures.labels import Box, around, place_labels

EDGES = st.integers(0, 12)
FRAME = Box(left=0, bottom=0, right=1000, top=600)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    (left, right), (bottom, top) = (sorted((draw(EDGES), draw(EDGES))) for _ in range(2))
    return Box(left=left, bottom=bottom, right=right, top=top)


def pixels(box: Box) -> set[tuple[int, int]]:
    return {
        (x, y)
        for x in range(int(box.left), int(box.right))
        for y in range(int(box.bottom), int(box.top))
    }


@given(boxes(), boxes())
def test_what_two_boxes_share_is_their_common_pixels(a: Box, b: Box) -> None:
    assert a.area == len(pixels(a))
    assert a.overlap(b) == b.overlap(a) == len(pixels(a) & pixels(b))
    assert a.overlap(a) == a.area


@given(st.floats(-50, 50), st.floats(-50, 50), st.floats(0.5, 9))
def test_a_marker_fills_its_box(x: float, y: float, radius: float) -> None:
    box = around(x, y, radius)
    assert box.area == pytest.approx(4 * radius**2)
    assert (box.left + box.right) / 2 == pytest.approx(x)
    assert (box.bottom + box.top) / 2 == pytest.approx(y)


@given(
    st.lists(
        st.tuples(st.floats(150, 850), st.floats(100, 500)), min_size=1, max_size=5, unique=True
    ),
    st.integers(1, 90),
    st.integers(1, 30),
)
@settings(max_examples=25, deadline=None)
def test_a_label_stays_at_its_point(
    points: list[tuple[float, float]], width: int, height: int
) -> None:
    """Where there is room: within reach, of its size, on no marker, first of all to the right."""
    distances = [math.dist(a, b) for a, b in itertools.combinations(points, 2)]
    assume(all(one > 250 for one in distances))
    found = place_labels(points, [(width, height)] * len(points), FRAME, marker_radius=6)
    assert len(found) == len(points)
    for box, (x, y) in zip(found, points, strict=True):
        assert box.right - box.left == pytest.approx(width)
        assert box.top - box.bottom == pytest.approx(height)
        assert box.left - x == pytest.approx(6 + 7.0)
        assert (box.bottom + box.top) / 2 == pytest.approx(y)


@pytest.mark.parametrize("side", ["left", "right", "below", "above"])
def test_a_label_leaves_a_side_that_is_taken_or_out_of_the_frame(side: str) -> None:
    walls = {
        "left": Box(left=0, bottom=0, right=500, top=600),
        "right": Box(left=500, bottom=0, right=1000, top=600),
        "below": Box(left=0, bottom=0, right=1000, top=300),
        "above": Box(left=0, bottom=300, right=1000, top=600),
    }
    (beside_wall,) = place_labels(
        [(500.0, 300.0)], [(80.0, 14.0)], FRAME, [walls[side]], marker_radius=5
    )
    assert beside_wall.overlap(walls[side]) == pytest.approx(0, abs=1e-6)
    opposite = {"left": "right", "right": "left", "below": "above", "above": "below"}[side]
    (in_frame,) = place_labels([(500.0, 300.0)], [(80.0, 14.0)], walls[opposite], marker_radius=5)
    assert in_frame.overlap(walls[opposite]) == pytest.approx(in_frame.area)


def test_reach_grows_with_the_scale() -> None:
    (near,) = place_labels([(500.0, 300.0)], [(80.0, 14.0)], FRAME, marker_radius=5)
    (far,) = place_labels([(500.0, 300.0)], [(80.0, 14.0)], FRAME, marker_radius=5, scale=2.0)
    assert far.left - near.left == pytest.approx(7.0)


@pytest.mark.parametrize("seed", range(20))
def test_labels_do_not_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres = rng.uniform((100, 100), (900, 500), (4, 2))
    points = [(float(x), float(y)) for x, y in np.repeat(centres, 3, axis=0)]
    points = [(x + rng.normal(0, 9), y + rng.normal(0, 9)) for x, y in points]
    frame = Box(left=0, bottom=0, right=1000, top=600)
    line = Box(left=0, bottom=299, right=1000, top=301)
    boxes = place_labels(points, [(90.0, 14.0)] * 12, frame, [line], marker_radius=6)
    for a, b in itertools.combinations(boxes, 2):
        assert a.overlap(b) == 0
    for box in boxes:
        assert box.overlap(frame) == pytest.approx(box.area)
        assert box.overlap(line) == 0
        assert all(box.overlap(around(x, y, 6)) == 0 for x, y in points)


def test_a_lone_label_stands_to_the_right() -> None:
    frame = Box(left=0, bottom=0, right=1000, top=600)
    (box,) = place_labels([(500.0, 300.0)], [(80.0, 14.0)], frame, marker_radius=5)
    assert box.left == pytest.approx(512)
    assert box.bottom == pytest.approx(293)
