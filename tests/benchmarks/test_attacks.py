"""Attacks: their parts, and one case from its start to its page."""

import asyncio
import json
import math
from pathlib import Path

import pytest

from benchmarks.attack_cases import (
    NUM_CLIENTS,
    Attack,
    Target,
    attacks,
    deaf,
    hangs_up,
    request,
    sends,
    silent,
    spoiled,
)
from benchmarks.attack_results import Found, percentile, section, table
from benchmarks.attacks import measure
from drivers.running_server import running_server
from paredown.models.resolve import resolve_model

GOOD = request("/v1/completions", b'{"prompt":"x","max_tokens":2}')


def found(**fields) -> Found:
    base = {
        "alone_s": [0.01, 0.02, 0.03],
        "attacked_s": [0.03, 0.05, 0.04],
        "health_s": [0.01, 0.02],
        "before_bytes": 100,
        "peak_bytes": 300,
        "after_bytes": 105,
    }
    return Found(case="S99", what="a test", **base | fields)


def test_what_is_asked() -> None:
    assert found().ratio == pytest.approx(2.0)
    assert found().is_met
    for fields in (
        {"attacked_s": [0.07]},
        {"attacked_s": []},
        {"num_failed": 3},
        {"health_s": [0.01, 0.11]},
        {"health_s": []},
        {"num_unhealthy": 1},
        {"after_bytes": 111},
        {"is_alive": False},
    ):
        assert not found(**fields).is_met, fields
    assert math.isinf(found(num_failed=3).ratio)


def test_percentiles() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.95) == 1.0
    assert math.isinf(percentile([], 0.5))


def test_the_table_fits_a_terminal_and_the_page_says_what_was_not_met() -> None:
    text = table([found(), found(num_failed=3, log_bytes=10**9, peak_bytes=10**12)])
    assert max(map(len, text.splitlines())) <= 110
    assert text.splitlines()[1].endswith("  met")
    assert text.splitlines()[2].endswith("not met")
    rows = section(found(health_s=[1.0]), 10.0).rows
    assert [row.meets for row in rows] == [True, False, True]
    assert "1,000.0 ms" in rows[1].found


def test_every_case_that_comes_over_http_is_there() -> None:
    cases = {attack.case.split()[0] for attack in attacks(1)}
    assert cases == {"S07", "S08", "S11", "S12", "S15", "S16", "S17", "S18"}
    assert NUM_CLIENTS == 4


def test_a_hostile_copy_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = resolve_model(None)
    before = (model / "tokenizer.json").read_bytes()
    for number, attack in enumerate(attacks(1)):
        if attack.spoil is not None:
            folder = spoiled(model, tmp_path / str(number), attack.spoil)
            files = [
                json.loads((folder / f"tokenizer{end}.json").read_text()) for end in ("", "_config")
            ]
            assert "Replace" in str(files[0]["decoder"]) or "range" in files[1]["chat_template"]
    assert (model / "tokenizer.json").read_bytes() == before


@pytest.mark.parametrize(
    "client",
    [sends(GOOD, GOOD), hangs_up(GOOD), silent(b"GET /he", 5), deaf(GOOD, 2)],
    ids=["sends", "hangs up", "silent", "deaf"],
)
def test_clients_go_on_until_they_are_cancelled(client) -> None:
    async def attack(port: int) -> None:
        async with asyncio.timeout(0.5):
            await client(Target(port, "127.0.0.1"))

    with running_server() as server:
        with pytest.raises(TimeoutError):
            asyncio.run(attack(int(server.url.rpartition(":")[2])))
        server.wait_until(lambda: server.is_empty)
        assert server.client.get("/health").status_code == 200


def test_a_case_is_measured_on_a_real_server() -> None:
    attack = next(one for one in attacks(1) if one.case == "S18")
    assert isinstance(attack, Attack)
    seen = measure(attack, resolve_model(None), 0.5, one_address=True)
    assert seen.is_alive
    assert seen.num_failed == 0
    assert min(len(seen.alone_s), len(seen.attacked_s), len(seen.health_s)) > 0
    assert 0 < seen.before_bytes <= seen.peak_bytes
