"""Few points of a grid that together hold every pair of values (pairwise testing)."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations, product

Value = Hashable
Point = dict[str, Value]
Setting = tuple[str, Value]


def pairwise(
    axes: Mapping[str, Sequence[Value]], excluded: frozenset[frozenset[Setting]] = frozenset()
) -> list[Point]:
    """Greedy: each point begins with a pair that is still missing and takes on every other axis
    the value with the most missing pairs. No point holds an excluded pair of settings."""
    missing = dict.fromkeys(
        frozenset(pair)
        for a, b in combinations(axes, 2)
        for pair in product(((a, x) for x in axes[a]), ((b, y) for y in axes[b]))
        if frozenset(pair) not in excluded
    )
    points = []
    while missing:
        point = dict(next(iter(missing)))
        for name in [one for one in axes if one not in point]:
            fitting = [
                value
                for value in axes[name]
                if not any(frozenset({(name, value), one}) in excluded for one in point.items())
            ]
            point[name] = max(
                fitting,
                key=lambda value: sum(
                    frozenset({(name, value), one}) in missing for one in point.items()
                ),
            )
        for pair in combinations(point.items(), 2):
            missing.pop(frozenset(pair), None)
        points.append({name: point[name] for name in axes})
    return points
