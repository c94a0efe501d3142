"""Places text labels beside points so that nothing overlaps: greedy, on pixel boxes."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

# Candidate distances (pixels at 100 dpi) and directions, nearest first; right and above are
# preferred.
_DISTANCES = (7.0, 12.0, 18.0, 26.0, 36.0, 48.0, 62.0, 78.0)
_DIRECTIONS = (0, 45, 315, 90, 270, 135, 225, 180, 22, 338, 158, 202, 67, 293)


@dataclass(frozen=True, kw_only=True)
class Box:
    """A rectangle in pixels, with y upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: "Box") -> float:
        """Returns the common area."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.top - self.bottom)


def place_labels(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    obstacles: Sequence[Box] = (),
    *,
    marker_radius: float,
    scale: float = 1.0,
) -> list[Box]:
    """Returns a box for each label of (width, height) `sizes`: the first position inside `frame`
    that covers no marker, label or obstacle, or else the one that covers least."""
    markers = [*obstacles, *(around(x, y, marker_radius) for x, y in points)]
    placed: list[Box | None] = [None] * len(points)
    for index in sorted(range(len(points)), key=lambda i: _crowding(points, i), reverse=True):
        taken = markers + [box for box in placed if box is not None]
        best, least = None, math.inf
        for distance, angle in itertools.product(_DISTANCES, _DIRECTIONS):
            reach = marker_radius + distance * scale
            box = _box(points[index], sizes[index], reach, math.radians(angle))
            outside = box.area - box.overlap(frame)
            covered = sum(box.overlap(other) for other in taken) + 4 * outside
            if covered < least - 1e-6:
                best, least = box, covered
        assert best is not None
        placed[index] = best
    return [box for box in placed if box is not None]


def _crowding(points: Sequence[tuple[float, float]], index: int) -> float:
    """Returns a larger value for points with nearer neighbours, whose labels are placed first."""
    x, y = points[index]
    others = (math.hypot(x - a, y - b) for i, (a, b) in enumerate(points) if i != index)
    return sum(1 / (1 + distance) for distance in others)


def around(x: float, y: float, radius: float) -> Box:
    """Returns the box of a round marker."""
    return Box(left=x - radius, bottom=y - radius, right=x + radius, top=y + radius)


def _box(point: tuple[float, float], size: tuple[float, float], reach: float, angle: float) -> Box:
    """Returns the label's box, whose nearest edge or corner is `reach` from the point in that
    direction."""
    width, height = size
    x = point[0] + reach * math.cos(angle) + width / 2 * _sign(math.cos(angle))
    y = point[1] + reach * math.sin(angle) + height / 2 * _sign(math.sin(angle))
    return Box(left=x - width / 2, bottom=y - height / 2, right=x + width / 2, top=y + height / 2)


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else math.copysign(1.0, value)
