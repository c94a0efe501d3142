"""The benchmark of predictions: what it measures, predicts and adds up."""

import pytest

from benchmarks.measured_serving import Job, Measured, Point, Seconds, Serving
from benchmarks.prediction import POINTS, mean_errors, predict, predict_bytes, rows_of
from cost.test_fit_steps import TRUTH
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.spec.kv import PAGE_SIZE

FOLDER = resolve_model(None)
TTFT, TPOT = Point(task="ttft", num_tokens=20), Point(task="tpot", num_tokens=5, batch=3)


def job(*points: Point) -> Job:
    return Job(folder=FOLDER, points=points, num_threads=1, num_steps=3)


def test_points_are_measured_and_predicted() -> None:
    """On the packaged model, with a made-up calibration: everything is above 0, and named alike."""
    both = job(TTFT, TPOT)
    serving = Serving(both)
    for point in (TTFT, TPOT, TTFT):
        serving.run_round(point)
    measured = serving.measured()
    seconds, num_bytes = predict(FOLDER, both, TRUTH)
    assert set(measured.seconds) == set(seconds) == {TTFT, TPOT}
    for one in (*measured.seconds.values(), *seconds.values()):
        assert 0 < one.executor < one.whole
    assert num_bytes == predict_bytes(Checkpoint.open(FOLDER), both)
    rows = rows_of("default", "bf16", measured, (seconds, num_bytes))
    assert [row.what for row in rows] == ["ttft 20", "tpot 5 x 3", "memory"]


def test_every_sequence_has_room_until_the_last_prompt_is_done() -> None:
    for point in POINTS:
        one = job(point)
        needed = point.batch * -(-(point.num_tokens + one.max_tokens(point)) // PAGE_SIZE)
        assert one.num_pages == needed
    sixteen = Point(task="tpot", num_tokens=256, batch=16)
    assert job(sixteen).max_tokens(sixteen) >= 256 * 16 // 512 + job().num_steps


def test_errors_are_means_of_absolute_ones() -> None:
    real = {TTFT: Seconds(1.0, 0.5), TPOT: Seconds(2.0, 1.9)}
    measured = Measured(seconds=real, base_bytes=100, peak_bytes=300)
    rows = rows_of("m", "f", measured, ({TTFT: Seconds(1.1, 0.6), TPOT: Seconds(1.4, 1.9)}, 190))
    assert [row.executor_error for row in rows] == [pytest.approx(0.2), 0.0, None]
    assert mean_errors(rows) == pytest.approx(
        {"TTFT": 0.1, "TPOT": 0.3, "TTFT and TPOT": 0.2, "memory": 0.05}
    )
