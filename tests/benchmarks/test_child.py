"""The driver of peers in processes of their own, and a whole case with peers that fail."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cases import Bar, Case
from benchmarks.checkpoints.cache import Variant
from benchmarks.peers import MACHINE, OURS, PEERS, Target
from benchmarks.peers.child import ChildPeer, PeerError
from benchmarks.report import as_json, make_row, markdown, text
from benchmarks.rounds import MIN_ROUNDS, Children, Rounds, run_case

PROMPT = Case(task="prefill", variant=Variant(model="tiny-llama", format="bf16"), prompt_tokens=64)


def fake(name: str) -> Target:
    return Target(target=f"tests.fakes.fake_peer:{name}")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    """Every process starts once for all cases."""
    targets = {
        OURS: PEERS[OURS],
        "machine": MACHINE,
        "fake": fake("FakePeer"),
        "steady": fake("SteadyPeer"),
        "fivefold": fake("FivefoldPeer"),
        "cold": fake("ColdPeer"),
        "waking": fake("WakingPeer"),
        "crashing": fake("CrashingPeer"),
        "raising": fake("RaisingPeer"),
    }
    with Children(logs=tmp_path_factory.mktemp("logs"), targets=targets) as running:
        yield running


@pytest.fixture
def start(tmp_path):
    children = []

    def start_one(name: str, timeout_s: float = 60.0) -> ChildPeer:
        children.append(ChildPeer(fake(name), tmp_path / "log", timeout_s))
        return children[-1]

    yield start_one
    for child in children:
        child.stop()


def test_a_peer_runs_in_another_process(start) -> None:
    assert start("FakePeer").call("info")["pid"] != os.getpid()


def test_an_exception_is_an_answer_and_the_child_lives_on(start) -> None:
    child = start("RaisingPeer")
    with pytest.raises(PeerError, match="ValueError: not this model"):
        child.call("load", Path(), None, None)
    assert child.call("prefill", [1]) == 0.01


def test_a_crash_is_reported_with_the_last_words(start) -> None:
    child = start("CrashingPeer")
    with pytest.raises(PeerError, match=r"crashed in prefill \(exit status 7\): about to crash"):
        child.call("prefill", [1])
    assert not child.is_alive
    with pytest.raises(PeerError, match="crashed in prefill"):
        child.call("info")


def test_a_peer_that_does_not_end_is_ended(start) -> None:
    child = start("SlowPeer", timeout_s=0.5)
    with pytest.raises(PeerError, match="prefill took longer than"):
        child.call("prefill", [1])


def test_a_package_that_is_missing_is_a_reason(start) -> None:
    with pytest.raises(PeerError, match="not installed: No module named 'a_package"):
        start("MissingPeer").call("info")


def test_a_case_goes_on_without_the_peers_that_fail(children: Children, root: Path) -> None:
    case = Case(
        task="prefill",
        variant=Variant(model="tiny-llama", format="int4-g32"),
        prompt_tokens=64,
        bar=Bar(min_ratio=1e-9, min_utilization=2.0),
    )
    names = [OURS, "fake", "crashing", "raising"]
    rounds = Rounds(most=2, case_s=60)
    run = run_case(children, root, case, names, num_threads=1, rounds=rounds)
    assert set(run.failures) == {"crashing", "raising"}
    assert run.seconds["fake"] == [0.01, 0.01]
    assert len(run.seconds[OURS]) == len(run.limits) == 2
    row = make_row(run)
    assert row.best_peer == "fake"
    assert row.rates["fake"].median == pytest.approx(6400)
    assert row.ratio is not None
    assert row.ratio.median == pytest.approx(row.rates[OURS].median / 6400, rel=0.5)
    assert row.passed is False

    machine = {
        "date": "2026-11-21",
        "name": "a processor",
        "num_threads": 1,
        "num_cores": 1,
        "num_rounds": 2,
        "case_s": 60,
        "load_average": 0.5,
        "bandwidth_bytes_per_s": 1e9,
        "int8_ops_per_s": 1e9,
        "bf16_flops_per_s": 1e9,
        "fp32_flops_per_s": 1e9,
    }
    document = as_json([row], [run], machine, {"absent": {"reason": "not installed"}})
    for shown in (text(document), markdown(document)):
        assert "6,400" in shown
        assert "crashing has no figure: crashed in prefill" in shown
        assert "absent: not measured, not installed" in shown
        assert "fail" in shown
        assert ", of the mean " in shown


def test_a_decode_counts_every_sequence(children: Children, root: Path) -> None:
    case = Case(
        task="decode",
        variant=Variant(model="tiny-qwen2", format="bf16"),
        prompt_tokens=20,
        num_steps=8,
        num_sequences=3,
    )
    rounds = Rounds(most=1, case_s=60)
    run = run_case(children, root, case, [OURS, "fake"], num_threads=1, rounds=rounds)
    row = make_row(run)
    assert row.rates["fake"].median == pytest.approx(3 * 8 / 0.01)
    assert row.utilization is not None
    assert row.of_mean is not None
    # No reading is above the best.
    assert row.of_mean.median >= row.utilization.median > 0
    assert row.passed is None
    # Weights in bf16 and three sequences of 24 tokens in the middle: 2 layers, 2 heads of 32.
    assert run.step_bytes > 3 * 24 * 2 * 2 * 2 * 32 * 2


def test_a_case_that_takes_long_has_fewer_rounds_and_no_peer_that_is_no_mark(
    children: Children, root: Path
) -> None:
    rounds = Rounds(most=9, case_s=0.0)
    names = [OURS, "fake", "fivefold"]
    run = run_case(children, root, PROMPT, names, num_threads=1, rounds=rounds)
    assert {name: len(seconds) for name, seconds in run.seconds.items()} == {
        OURS: MIN_ROUNDS,
        "fake": MIN_ROUNDS,
    }
    assert len(run.limits) == MIN_ROUNDS
    assert run.failures == {
        "fivefold": "1280.0 tokens/s in the better of two turns before the first round, where the "
        "fastest peer was 5.0 times as fast"
    }


def test_a_peer_that_is_slow_at_first_has_another_turn(children: Children, root: Path) -> None:
    rounds = Rounds(most=2, case_s=60)
    names = [OURS, "steady", "cold"]
    run = run_case(children, root, PROMPT, names, num_threads=1, rounds=rounds)
    assert not run.failures
    assert run.seconds["cold"] == [0.2, 0.2]


def test_the_model_of_a_peer_that_is_left_out_is_freed(children: Children, root: Path) -> None:
    names = [OURS, "fake", "fivefold"]
    rounds = Rounds(most=1, case_s=60)
    run = run_case(children, root, PROMPT, names, num_threads=1, rounds=rounds)
    assert "fivefold" in run.failures
    for name in ("fake", "fivefold"):
        assert children.get(name).call("is_closed")


def test_short_cases_have_all_rounds() -> None:
    rounds = Rounds(most=5, case_s=60.0)
    assert [rounds.are_done(number, 59.0) for number in range(7)] == [False] * 5 + [True] * 2
    assert [rounds.are_done(number, 61.0) for number in range(5)] == [False] * 3 + [True] * 2
    assert Rounds(most=1, case_s=60.0).are_done(1, 0.0)


def test_a_short_turn_is_repeated_and_its_first_time_does_not_count(
    children: Children, root: Path
) -> None:
    rounds = Rounds(most=2, case_s=60)
    run = run_case(children, root, PROMPT, [OURS, "waking"], num_threads=1, rounds=rounds)
    # With the first time it would be 0.03, without repeating 0.1.
    assert run.seconds["waking"] == pytest.approx([0.02, 0.02])
