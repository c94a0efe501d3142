"""Pairwise testing: selects few points of a grid that together cover every pair of values."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations, product

Value = Hashable
Point = dict[str, Value]


def pairwise(axes: Mapping[str, Sequence[Value]]) -> list[Point]:
    """Selects greedily: each point starts with a missing pair and takes, on every other axis, the
    value with the most missing pairs."""
    missing = dict.fromkeys(
        frozenset(pair)
        for a, b in combinations(axes, 2)
        for pair in product(((a, x) for x in axes[a]), ((b, y) for y in axes[b]))
    )
    points = []
    while missing:
        point = dict(next(iter(missing)))
        for name in [one for one in axes if one not in point]:
            point[name] = max(
                axes[name],
                key=lambda value: sum(
                    frozenset({(name, value), one}) in missing for one in point.items()
                ),
            )
        for pair in combinations(point.items(), 2):
            missing.pop(frozenset(pair), None)
        points.append({name: point[name] for name in axes})
    return points
