"""`paredown plan` and `paredown simulate`: tables that fit, JSON, a picture, and clear errors."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cost.test_fit_steps import TRUTH
from fakes.tiny_models import make_model
from paredown.cli.main import main
from paredown.compress.compress import compress
from paredown.cost.machine_file import save_step_fit
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import processor_name
from paredown.models.checkpoint import Checkpoint

ON_L4 = ["--machine", "l4"]
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
    f"{0.05 * i},{100 + 7 * (i % 13)},{10 + i % 5}\n" for i in range(60)
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def run_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main([*words, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "load.png"
    words = ["simulate", *ON_L4, "--rps", "50", "--requests", "300", "--p95", "2s"]
    assert main([*words, "--machines", "2", "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "300 requests, 300 of them computed on 2 machines" in out
    assert "first token" in out
    assert max(map(len, out.splitlines())) <= 80
    assert picture.read_bytes().startswith(b"\x89PNG")
    # It is not overwritten.
    assert main([*words, "--plot", str(picture)]) == 2


def test_one_request_is_not_several(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", *ON_L4, "--rps", "1", "--requests", "1", "--input-tokens", "9000"]
    assert main(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1 request, 0 of them computed" in out
    assert "1 request refused, longer than the context" in out


def test_simulate_a_trace(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(["simulate", *ON_L4, "--trace", str(trace), "--requests", "40"], capsys)
    assert found["num_requests"] == 40
    moments = found["moments"]
    assert isinstance(moments, list)
    assert moments[-1]["time_s"] >= found["duration_s"]
    assert set(moments[0]) == {"time_s", "num_waiting", "num_running", "kv_share"}
    assert max(one["num_running"] for one in moments) > 0
    assert found["num_output_tokens"] == sum(10 + i % 5 for i in range(40))


def test_simulate_a_cache_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", *ON_L4, "--rps", "50", "--requests", "400", "--cache-hit", "0.5"]
    found = run_json(words, capsys)
    assert found["num_hits"] == pytest.approx(200, rel=0.25)


def test_plan(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", *ON_L4, "--rps", "3000", "--p95", "60ms", "--price-per-hour", "0.7"]
    words += ["--weights", "bf16", "--kv-dtype", "bf16", "--output-tokens", "8-24"]
    assert main([*words, "--machines", "1"]) == 0
    out = capsys.readouterr().out
    for part in ("one machine alone", "million generated tokens", "for 1 machine to do"):
        assert part in out
    assert max(map(len, out.splitlines())) <= 80


def test_plan_of_a_trace(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", *ON_L4, "--trace", str(trace), "--rps", "50", "--p95-ttft", "1s"]
    found = run_json([*words, "--weights", "bf16", "--kv-dtype", "bf16"], capsys)
    assert found["num_machines"] == 1
    assert found["limits"] == {"e2e_s": None, "ttft_s": 1.0, "tpot_s": None}


@pytest.fixture
def measured_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine with one thread, as if `doctor --sweep` had kept a fit of it."""
    monkeypatch.setenv("PAREDOWN_CACHE", str(tmp_path))
    roofs = replace(TRUTH.roofs, name=processor_name())
    save_step_fit(replace(TRUTH, roofs=roofs, isa=chosen_isa(), num_threads=1))


def test_a_folder_is_planned_and_simulated_as_it_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"hidden_size": 128, "intermediate_size": 256, "tie_word_embeddings": True}
    make_model("llama", torch.bfloat16, 0, **sizes).save_pretrained(tmp_path / "model")
    name, folder = "w4a8-g32-qoq", str(tmp_path / "out")
    compress(Checkpoint.open(tmp_path / "model"), tmp_path / "out", name)
    words = [folder, *ON_L4, "--rps", "20", "--input-tokens", "8", "--output-tokens", "4"]
    simulated = ["simulate", *words, "--requests", "50"]
    assert main(simulated) == 0
    assert f"out, {name}, output bf16, KV bf16" in " ".join(capsys.readouterr().out.split())
    assert main([*simulated, "--weights", "bf16", "--kv-dtype", "int8"]) == 0
    assert "out, bf16, KV int8" in " ".join(capsys.readouterr().out.split())
    found = run_json(["plan", *words, "--p95", "40ms", "--kv-dtype", "bf16"], capsys)
    assert [one["weights"] for one in found["options"]] == ["bf16", "int8", "int4-g128", name]
    asked = run_json(["plan", *words, "--p95", "40ms", "--weights", name], capsys)
    assert {one["weights"] for one in asked["options"]} == {name}


@pytest.mark.usefixtures("measured_machine")
def test_plan_on_this_machine_as_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """Formats that were not measured are left out, and that is said."""
    words = ["plan", "--machine", "this", "--threads", "1", "--rps", "5", "--p95", "3s"]
    assert main([*words, "--weights", "bf16", "int8", "int4-g32", "--machines", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert "doctor --sweep" in found["machine"]["basis"]
    options = [(one["weights"], one["kv_dtype"]) for one in found["options"]]
    assert options == [("bf16", "bf16"), ("int4-g32", "bf16")]
    assert found["num_machines"] >= 1
    assert set(found["speedups"]) == {"memory", "everything"}
    assert "not measured on this machine, so left out" in err
    for name in ("int8, output bf16, KV bf16", "bf16, KV int8"):
        assert name in err
    assert main([*words, "--weights", "int8"]) == 2
    assert "none of these formats was measured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", *ON_L4], "the rate of requests is not given"),
        (["plan", *ON_L4, "--rps", "-3"], "the load is out of range"),
        (["plan", *ON_L4, "--rps", "1e12"], "the load is out of range"),
        (["plan", *ON_L4, "--rps", "nan"], "the load is out of range"),
        (["plan", "--machine", "abacus", "--rps", "3"], "one of a100-40gb, a100, h100"),
        (["plan", *ON_L4, "--rps", "3", "--p95", "soon"], "--p95 is not a duration"),
        (["plan", *ON_L4, "--rps", "3", "--p95", "0s"], "--p95 is not a duration"),
        (["plan", *ON_L4, "--rps", "3", "--weights", "int9"], "names no format"),
        (["plan", *ON_L4, "--rps", "3", "--cache-hit", "1"], "hit rate"),
        (["plan", *ON_L4, "--rps", "3", "--burstiness", "0"], "burstiness"),
        (["plan", *ON_L4, "--rps", "3", "--input-tokens", "many"], "not a number of tokens"),
        (["plan", *ON_L4, "--rps", "3", "--input-tokens", "5000"], "prompts are longer"),
        (["plan", *ON_L4, "--rps", "3", "--price-per-hour", "-1"], "price is out of range"),
        (["plan", *ON_L4, "--rps", "3", "--machines", "0"], "number of machines"),
        (["plan", *ON_L4, "--rps", "3", "--plot", "x.pdf"], "writes PNG"),
        (["simulate", *ON_L4, "--rps", "3", "--requests", "0"], "number of requests"),
        (["simulate", *ON_L4, "--rps", "3", "--on-share", "0"], "share of time"),
        (["simulate", *ON_L4, "--rps", "3", "--machines", "0"], "number of machines"),
        (
            ["simulate", *ON_L4, "--rps", "1", "--requests", "60", "--on-share", "0.05"],
            "Use at least 120 requests",
        ),
        (["simulate", *ON_L4, "--rps", "3", "--weights", "none"], "names no format"),
        (
            ["simulate", *ON_L4, "--rps", "3", "--response-cache", "9"],
            "requests repeat an earlier one",
        ),
        (["simulate", *ON_L4, "--rps", "3", "--fair-shares"], "no tenants"),
        (["simulate", *ON_L4, "--rps", "3", "--target-itl-ms", "9"], "where the model runs"),
        (["simulate", *ON_L4, "--rps", "3", "--max-running", "0"], "positive integer"),
    ],
)
def test_bad_input(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrived_at,num_prefill_tokens\n0,5\n", "not the columns of a trace"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,5\n0,6,6\n", "come at once"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,-5\n", "line 2"),
        ("a" * 300_000, "line 1: this is not CSV"),
        (
            "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "1" * 300_000,
            "line 2: this is not CSV",
        ),
        ('{"timestamp":' + "[" * 200_000, "line 1: this is not JSON"),
    ],
)
def test_bad_traces(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    for verb in ("plan", "simulate"):
        assert main([verb, *ON_L4, "--trace", str(path)]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input-tokens", "5"], "exclude each other"),
        (["--burstiness", "2"], "exclude each other"),
        (["--on-share", "0.5"], "exclude each other"),
        (["--response-cache", "9"], "no hash ids in"),
        (["--requests", "61"], "Use 2 to 60"),
        (["--requests", "-1"], "Use 2 to 60"),
    ],
)
def test_what_a_trace_says_itself(
    trace: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *ON_L4, "--trace", str(trace), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_model_too_large_for_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 28672,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    for verb in ("plan", "simulate"):
        assert main([verb, str(path), *ON_L4, "--rps", "1"]) == 2
        assert "GB too much" in capsys.readouterr().err
