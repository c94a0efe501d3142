"""Checks a point of the exactness matrix: it must give the answers of the same requests, each run
alone in its own engine."""

from drivers.exactness_matrix import BASE, RUNNING, Matrix, Outcome, Point

ALONE = BASE
TOGETHER = {**BASE, "batch": 9, "step": 64}


def named(point: Point) -> str:
    """Names how the point differs from the base."""
    changes = [f"{name} {value}" for name, value in point.items() if value != BASE[name]]
    return ", ".join(changes) or "base"


def check(matrix: Matrix, point: Point) -> Outcome:
    work = matrix.work(point)
    outcome = matrix.run(point, work)
    expected = matrix.expected(point, work)
    for answers in outcome.answers:
        assert answers == expected
    assert_it_happened(point, outcome)
    return outcome


def assert_it_happened(point: Point, outcome: Outcome) -> None:
    """Asserts that the engine ran as the point says, where the other values allow it."""
    is_large = point["step"] >= 64
    if point["batch"] > 1 and is_large and point["preemption"] != "pages":
        assert outcome.most_running > 1
    if point == {**TOGETHER, "batch": 33}:
        assert outcome.most_running == 33
    if point["preemption"] == "random" or (
        point["preemption"] == "pages" and point["batch"] >= 9 and is_large
    ):
        assert outcome.num_preemptions > 0
    if point["prefix"] == "off" and point["preemption"] == "none":
        assert outcome.num_cached_tokens == 0
    # A request that scores its prompt computes all of it.
    if point["prefix"] == "warm" and point["preemption"] == "none" and point["draw"] != "scored":
        assert outcome.num_cached_tokens > 0
    if point["answers"] > 1 and point["step"] > 1:  # no more run than a step has tokens
        assert outcome.num_shared_tokens > 0
    if point["speculation"] != "off" and point["drafts"] == "fixed" and is_large:
        assert outcome.speculation is not None
        assert sum(outcome.speculation.num_proposed) > 0


def one_axis(base: Point) -> list[Point]:
    return [
        {**base, name: value}
        for name, values in RUNNING.items()
        for value in values
        if value != base[name]
    ]
