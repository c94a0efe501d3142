"""`paredown bench`: what it prints and writes, and what it refuses before it loads anything."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.image import imread

from cost.test_fit_steps import TRUTH
from fakes.t5_tokenizer import write_t5_tokenizer
from fakes.tiny_t5 import VOCAB_SIZE, make_t5, write_t5
from paredown.cli.main import main
from paredown.cli.tables.bench import milliseconds
from paredown.cost.machine_file import save_step_fit
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.serving import ttft_s
from paredown.cost.step_cost import decode_load, prefill_load
from paredown.cost.step_fit import StepFit
from paredown.kernels.isa import chosen_isa
from paredown.kernels.probe import processor_name
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.run_forms import model_formats

TRACE = (
    "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,30,5\n0.01,5000,6\n0.02,12,4\n0.03,9,3\n"
)
QUICK = ["bench", "--threads", "1", "--rounds", "1"]
OVER_TIME = ["bench", "--threads", "1", "--pages", "200"]


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_batches_in_tables_of_80_columns_and_a_picture(
    capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plot = tmp_path / "latency.png"
    cells = ["--batch", "1,3", "--input-tokens", "8,20", "--output-tokens", "4"]
    extra = ["--slo", "ttft=10s,tpot=5s", "--speculate", "ngram", "--plot", str(plot)]
    code, out, _ = run(capsys, *QUICK, *cells, *extra)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    for word in (
        "TTFT",
        "TPOT",
        "ITL",
        "p99",
        "MBU",
        "MFU",
        "SLO",
        "accepted",
        "KV pages",
        "step budget",
    ):
        assert word in out
    rows = [line.split() for line in out.splitlines()]
    sizes = [tuple(row[:3]) for row in rows if len(row) > 8 and row[0] in "13" and row[2] == "4"]
    expected = [("1", "8", "4"), ("3", "8", "4"), ("1", "20", "4"), ("3", "20", "4")]
    assert sizes == expected * 2
    assert imread(plot).shape[2] == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0012345, "1.23"), (0.09994, "99.9"), (9.999, "9,999"), (12.34, "12.3s"), (9876.4, "9876s")],
)
def test_a_latency_has_five_characters_at_most(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


def keep_step_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StepFit:
    """Keeps a fit of this machine with one thread, as `doctor --sweep` would."""
    monkeypatch.setenv("PAREDOWN_CACHE", str(folder))
    roofs = replace(TRUTH.roofs, name=processor_name())
    kept = replace(TRUTH, roofs=roofs, isa=chosen_isa(), num_threads=1)
    save_step_fit(kept)
    return kept


def test_predictions_beside_measurements(capsys, tmp_path: Path, monkeypatch) -> None:
    """A lone request takes one step for its prompt, then a step for each token."""
    fit = keep_step_fit(tmp_path, monkeypatch)
    cells = ["--batch", "1,2", "--input-tokens", "40", "--output-tokens", "4"]
    found = json.loads(run(capsys, *QUICK, "--json", *cells)[1])
    rows = {(one["load"], one["figure"]): one for one in found["predicted"]}
    figures = ("TTFT", "TPOT", "MBU", "MFU")
    loads = [(load, figure) for load in ("1 x 40 + 4", "2 x 40 + 4") for figure in figures]
    assert list(rows) == [("one sequence", "MBU"), ("one sequence", "MFU"), *loads]
    checkpoint = Checkpoint.open(resolve_model(None))
    spec, formats = checkpoint.spec, model_formats(checkpoint)
    cost = PredictedStep(spec=spec, formats=formats, fit=fit)
    first = rows["1 x 40 + 4", "TTFT"]
    assert first["predicted"] == pytest.approx(ttft_s(cost, spec, 40))
    assert first["measured"] == found["loads"][0]["ttft_s"]["mean"]
    assert first["ratio"] == pytest.approx(first["predicted"] / first["measured"])
    each_s = sum(cost.step_s(decode_load(1, 41 + number)) for number in range(3)) / 3
    assert rows["1 x 40 + 4", "TPOT"]["predicted"] == pytest.approx(each_s, rel=1e-3)
    # Bytes and arithmetic are those of the run, so times and limits alone make the difference.
    alone = replace(cost, with_engine=False)
    steps_s = alone.step_s(prefill_load(40))
    steps_s += sum(alone.step_s(decode_load(1, 41 + number)) for number in range(3))
    model_s = found["loads"][0]["model_share"] * found["loads"][0]["duration_s"]
    peaks = fit.roofs.bf16_flops_per_s / found["machine"]["bf16_flops_per_s"]
    assert rows["1 x 40 + 4", "MFU"]["ratio"] == pytest.approx(model_s / steps_s / peaks, rel=1e-3)
    assert rows["one sequence", "MBU"]["predicted"] > 0
    out = run(capsys, *QUICK, *cells)[1]
    assert "predicted from `doctor --sweep`" in out
    assert "2 x 40 + 4" in out


def test_what_is_not_predicted_is_said(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PAREDOWN_CACHE", str(tmp_path))
    cells = ["--batch", "1", "--input-tokens", "8", "--output-tokens", "2"]
    found = json.loads(run(capsys, *QUICK, "--json", *cells)[1])
    assert found["predicted"] is None
    assert "doctor --sweep --threads 1" in found["missing"]
    assert "doctor --sweep" in run(capsys, *QUICK, *cells)[1]
    keep_step_fit(tmp_path, monkeypatch)
    out = run(capsys, *QUICK, *cells, "--kv-dtype", "int4")[1]
    assert "measured no bf16, KV int4" in " ".join(out.split())
    assert "leave --speculate out" in run(capsys, *QUICK, *cells, "--speculate", "ngram")[1]


def test_batches_as_json(capsys) -> None:
    cells = ["--batch", "2", "--input-tokens", "8", "--output-tokens", "4"]
    code, out, _ = run(capsys, *QUICK, "--json", *cells)
    assert code == 0
    result = json.loads(out)
    (load,) = result["loads"]
    assert result["decode_tokens_per_s"] > 0
    assert (load["batch"], load["num_input_tokens"], load["num_requests"]) == (2, 8, 2)
    assert load["ttft_s"]["p50"] > 0
    assert load["input_tokens_per_s"] == pytest.approx(2 * load["output_tokens_per_s"])
    assert load["goodput_per_s"] is None


def test_requests_over_time(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["--requests", "6", "--rate", "200", "--input-tokens", "4-9", "--output-tokens", "3"]
    code, out, _ = run(capsys, *OVER_TIME, *words, "--slo", "e2e=100s")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "6 requests, 200 per second" in out
    assert "100.0% within e2e" in out
    found = json.loads(run(capsys, *OVER_TIME, *words, "--json")[1])["loads"][0]
    assert (found["num_requests"], found["num_failed"]) == (6, 0)
    assert found["itl_s"]["p99"] > 0


def test_a_trace(capsys, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    code, out, _ = run(capsys, *OVER_TIME, "--trace", str(path), "--requests", "3")
    assert code == 0
    assert "3 requests of trace.csv" in out
    assert "3, 1 cut to what the model holds" in out
    found = json.loads(run(capsys, *OVER_TIME, "--trace", str(path), "--json")[1])["loads"][0]
    assert (found["num_requests"], found["num_cut"], found["num_failed"]) == (4, 1, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rounds", "0"], "--rounds must be at least one"),
        (["--batch", "0"], "--batch is not a list of positive numbers"),
        (["--batch", "1,x"], "--batch is not a list of positive numbers"),
        (["--batch", "2,2"], "names a number twice"),
        (["--input-tokens", "5-9"], "--input-tokens is not a list of positive numbers"),
        (["--output-tokens", "-5"], "--output-tokens is not a list of positive numbers"),
        (["--requests", "0"], "no requests"),
        (["--requests", "-4"], "no requests"),
        (["--rate", "-1"], "the rate of requests is not a positive number"),
        (["--rate", "0"], "the rate of requests is not a positive number"),
        (["--rate", "nan"], "the rate of requests is not a positive number"),
        (["--rate", "5", "--batch", "2"], "--batch belongs to batches"),
        (["--requests", "5", "--rounds", "2"], "--rounds belongs to batches"),
        (["--requests", "5", "--input-tokens", "9-5"], "not a valid number or range"),
        (["--requests", "5", "--input-tokens", "5,9"], "not a number of tokens"),
        (["--trace", "TRACE", "--output-tokens", "5"], "--output-tokens and a trace exclude"),
        (["--trace", "TRACE", "--requests", "5"], "the trace has fewer requests"),
        (["--trace", "TRACE", "--requests", "0"], "no requests"),
        (["--trace", "nowhere.csv"], "cannot be read"),
        (["--slo", "ttft=5"], "not a latency limit"),
        (["--slo", "speed=5s"], "unknown or given twice"),
        (["--seed", "-1"], "--seed is negative"),
        (["--plot", "nowhere/latency.png"], "no folder nowhere"),
        (["--plot", "trace.png"], "exists already"),
        (["--plot", "latency.jpg"], "--plot writes PNG"),
        (["--max-step-tokens", "0"], "max_step_tokens must be"),
        (["--max-running", "0"], "max_running must be"),
    ],
)
def test_senseless_options_are_refused_before_loading(
    capsys, tmp_path: Path, monkeypatch, words: list[str], message: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    (tmp_path / "trace.png").touch()
    monkeypatch.chdir(tmp_path)
    words = [str(path) if word == "TRACE" else word for word in words]
    monkeypatch.setattr("paredown.cli.verbs.bench.load_executor", None)
    code, out, err = run(capsys, "bench", *words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input-tokens", "3000"], "requests are longer"),
        (["--requests", "2", "--output-tokens", "3000"], "requests are longer"),
        (["--requests", "2", "--pages", "4"], "room for 64"),
        (["--pages", "2"], "too few KV pages"),
    ],
)
def test_what_the_model_cannot_hold_is_refused(capsys, words: list[str], message: str) -> None:
    code, _, err = run(capsys, "bench", "--threads", "1", *words)
    assert code == 2
    assert message in err


def test_without_matplotlib_a_picture_is_refused_before_the_work(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run(capsys, *QUICK, "--plot", "latency.png")
    assert code == 2
    assert "pip install matplotlib" in err


def test_an_encoder_decoder_is_measured_over_time_alone(tmp_path, capsys):
    write_t5(make_t5("gated-untied"), tmp_path)
    write_t5_tokenizer(tmp_path, VOCAB_SIZE)
    assert main(["bench", str(tmp_path), "--rounds", "1"]) == 2
    assert "not measured step by step" in capsys.readouterr().err
    words = ["--rate", "50", "--requests", "4", "--input-tokens", "20", "--output-tokens", "4"]
    assert main(["bench", str(tmp_path), "--threads", "1", "--json", *words]) == 0
    (load,) = json.loads(capsys.readouterr().out)["loads"]
    assert load["num_requests"] == 4
    assert load["num_failed"] == 0
    assert load["output_tokens_per_s"] > 0
