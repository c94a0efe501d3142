"""Each cell encodes its own texts, and rates follow from the time."""

import pytest

from fakes.scripted_encoder import ScriptedEncoder
from paredown.cost.encoder_load import encoder_flops
from paredown.evaluate.speed import encoder_speed
from paredown.evaluate.speed.encoder_speed import EncoderCell, measure_encoder


def test_every_cell_is_measured_with_its_texts(monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(encoder_speed.time, "perf_counter", lambda: 0.125 * next(clock))
    executor, counts = ScriptedEncoder(), []
    cells = [EncoderCell(num_texts=2, num_tokens=5), EncoderCell(num_texts=1, num_tokens=7)]
    found = measure_encoder(
        executor,
        cells,
        num_rounds=2,
        peak_per_s=1e6,
        on_count=lambda done, total: counts.append((done, total)),
    )
    assert counts == [(1, 3), (2, 3), (3, 3)]
    assert [[len(text) for text in batch] for batch in executor.batches] == [[5, 5], [7]] * 3
    for one, cell in zip(found, cells, strict=True):
        assert one.cell == cell
        assert one.texts_per_s == pytest.approx(cell.num_texts / 0.125)
        assert one.tokens_per_s == pytest.approx(one.texts_per_s * cell.num_tokens)
        assert one.spread == pytest.approx(0, abs=1e-9)
        flops = encoder_flops(1, cell.num_tokens, executor.spec)
        assert one.mfu == pytest.approx(one.texts_per_s * flops / 1e6)
