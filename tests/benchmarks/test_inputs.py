"""The benchmark of inputs on a tiny shape."""

import pytest

from benchmarks import inputs
from paredown.formats.table import FORMATS


def test_every_way_is_measured_in_every_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inputs, "DECODE_STEPS", 2)
    monkeypatch.setattr(inputs, "BATCH", 2)
    model = "llama-15m"
    rows = inputs.measure(model, "int4-g32", num_threads=1, num_rounds=1)
    assert {row.weights for row in rows} == set(inputs.ways("int4-g32"))
    assert len({row.task for row in rows}) == 3
    assert all(len(row.rates) == 1 and row.median > 0 for row in rows)
    inputs.print_rows(rows)
    assert capsys.readouterr().out.count(model) == len(rows)


def test_only_inputs_differ() -> None:
    found = inputs.ways("int4-g64")
    plain = FORMATS["int4-g64"]
    codes = [spec for spec in found.values() if spec.dtype == "int4"]
    assert [spec.activations for spec in codes] == list(inputs.INPUTS)
    assert all(spec.group_size == plain.group_size for spec in codes)
