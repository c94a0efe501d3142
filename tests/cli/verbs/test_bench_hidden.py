"""`paredown bench --sweep hidden`, with a sweep that takes no time."""

import json
from pathlib import Path

import pytest

from paredown.cli.main import main
from paredown.cli.verbs import bench_hidden
from paredown.errors import ConfigError
from paredown.evaluate.speed.hidden_sweep import (
    GROUPS,
    MAX_TOKENS,
    HiddenSweep,
    fit_group,
    sweep_hidden,
)

POINTS = [(d, 1e-6 + 2e-12 * d * d) for d in (256, 512, 1024)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def sweep(*, format_name: str, num_tokens: int, num_threads: int, on_progress) -> HiddenSweep:
        on_progress(1, 1)
        fits = tuple(fit_group(group, POINTS) for group in GROUPS)
        return HiddenSweep(
            format=format_name, num_tokens=num_tokens, num_threads=num_threads, fits=fits
        )

    monkeypatch.setattr(bench_hidden, "sweep_hidden", sweep)


def bench(*words: object) -> int:
    return main(["bench", "--sweep", "hidden", "--threads", "1", *map(str, words)])


def test_a_table_and_json(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert bench("--sweep-tokens", 4) == 0
    assert "tokens: 4, threads: 1" in capsys.readouterr().out
    assert bench("--json", "--sweep-weights", "int8") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["group"] for one in found["fits"]] == list(GROUPS)
    assert found["format"] == "int8"
    assert found["fits"][0]["coefficients"] == pytest.approx([1e-6, 0, 2e-12], rel=1e-3)


@pytest.mark.parametrize("num_tokens", [0, -1, MAX_TOKENS + 1, 10**13])
def test_absurd_numbers_of_tokens_are_refused(num_tokens: int) -> None:
    with pytest.raises(ConfigError, match=r"Use 1 to 16,384 tokens"):
        sweep_hidden(num_tokens=num_tokens, num_threads=1)


def test_a_picture(tmp_path: Path, capsys) -> None:
    path = tmp_path / "hidden.png"
    assert bench("--sweep-plot", path) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert bench("--sweep-plot", path) == 2
    assert bench("--sweep-plot", tmp_path / "hidden.gif") == 2
    assert "PNG" in capsys.readouterr().err
