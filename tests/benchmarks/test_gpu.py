"""The benchmark of the torch executor on a GPU, on a model of a few numbers and without one."""

import pytest

from benchmarks import gpu


def test_everybody_is_measured_on_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "NUM_PROMPT_TOKENS", 20)
    monkeypatch.setattr(gpu, "NUM_DECODE_TOKENS", 3)
    monkeypatch.setattr(gpu, "NUM_ROUNDS", 1)
    rows = list(gpu.measure_shape("tiny", [1, 3], "cpu", bandwidth=1e9))
    assert [(row.who, row.batch) for row in rows] == [
        (who, batch)
        for who in ("paredown fp32", "transformers fp32", "transformers bf16")
        for batch in (1, 3)
    ]
    for row in rows:
        assert row.decode_tokens_per_s == pytest.approx(row.batch / row.decode_step_ms * 1e3)
        assert row.prefill_tokens_per_s > 0
        assert row.mbu > 0
    # What a step must read: two layers, the output layer, and in bf16 half of it.
    assert rows[0].mbu * rows[0].decode_step_ms == pytest.approx(
        2 * rows[4].mbu * rows[4].decode_step_ms, rel=0.05
    )


def test_a_copy_has_a_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_COPY_BYTES", 8 << 20)
    assert gpu.copy_bandwidth("cpu") > 0
