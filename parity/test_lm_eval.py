"""lm-evaluation-harness gives the same figures on our executor as on its own `hf` model.

Both command lines run as a user runs them, on the packaged model in float32 with a context of 64,
so that contexts are cut and texts take several windows. Our window counts the last scored token,
the `hf` model's does not: its max_length is one less here.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from paredown.models.resolve import resolve_model

CONTEXT = 64
# Sums of up to 60 log-probabilities, in float32 in other orders.
TOLERANCE = 2e-3

TASKS = {
    "tiny_choice": """
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{target}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "tiny_rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "tiny_generate": """
output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "{{target}}"
generation_kwargs: {until: ["\\n", "."], max_gen_toks: 24, do_sample: false}
metric_list: [{metric: exact_match}]
""",
}
SENTENCE = "It was late in the evening when the two men came back to the old house by the river. "
CHOICES = [" the door.", " a xylophone!", "  two spaces", "s"]
DOCS: dict[str, list[dict[str, Any]]] = {
    "tiny_choice": [
        {"text": "He opened", "choices": CHOICES, "target": 0},
        {"text": "He opened ", "choices": ["the door.", "umbrellas."], "target": 0},
        {"text": SENTENCE * 5 + "They opened", "choices": CHOICES, "target": 1},
        {"text": "", "choices": ["The", "Ünïcödé", "<|endoftext|>The"], "target": 2},
    ],
    "tiny_rolling": [
        {"text": "Short."},
        {"text": SENTENCE * 3},
        {"text": SENTENCE * 9 + "The end"},
        {"text": "<|endoftext|>" + SENTENCE * 4},
    ],
    "tiny_generate": [
        {"text": text, "target": "?"}
        for text in ("Once upon a time", "It was late in the evening", "<|endoftext|>Chapter I")
    ],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm_eval") / "model"
    shutil.copytree(resolve_model(None), folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    floats = {name: tensor.to(torch.float32) for name, tensor in tensors.items()}
    save_file(floats, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"max_position_embeddings": CONTEXT}
    path.write_text(json.dumps(config | {"torch_dtype": "float32"}))
    return folder


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    for name, text in TASKS.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS[name]))
        head = f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}"
        (folder / f"{name}.yaml").write_text(f"{head}\ntest_split: test{text}")
    return folder


def evaluate(
    module: str, model: str, args: str, tasks: Path, out: Path, extra: Sequence[str] = ()
) -> dict[str, Any]:
    """What the command line writes: {"results": by task, task: its samples}."""
    environment = os.environ | {
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_CACHE": str(out / "cache"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    words = [
        *("--model", model, "--model_args", args, "--tasks", ",".join(TASKS)),
        *("--include_path", str(tasks), "--output_path", str(out), "--log_samples"),
        *extra,
    ]
    done = subprocess.run(
        [sys.executable, "-m", module, "run", *words],
        env=environment,
        capture_output=True,
        text=True,
        cwd=out,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (results,) = out.glob("*/results_*.json")
    told: dict[str, Any] = {"results": json.loads(results.read_text())["results"]}
    told["stderr"] = done.stderr
    for name in TASKS:
        (path,) = out.glob(f"*/samples_{name}_*.jsonl")
        samples = [json.loads(line) for line in path.read_text().splitlines()]
        told[name] = sorted(samples, key=lambda one: one["doc_id"])
    return told


@pytest.fixture(scope="module")
def ours(model: Path, tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    args = f"model={model},kv_dtype=fp32,num_threads=1,num_pages=256"
    out = tmp_path_factory.mktemp("ours")
    return evaluate("paredown.evaluate.quality.lm_eval", "paredown", args, tasks, out)


@pytest.fixture(scope="module")
def theirs(model: Path, tasks: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    args = f"pretrained={model},dtype=float32,max_length={CONTEXT - 1}"
    out = tmp_path_factory.mktemp("theirs")
    return evaluate("lm_eval", "hf", args, tasks, out, ["--device", "cpu", "--batch_size", "1"])


def numbers(sample: dict[str, Any]) -> list[tuple[float, str | None]]:
    """(log-probability, is it greedy) of each request of a sample; the file has them as texts."""
    answers = [one[0] for one in sample["resps"]]
    pairs = [one if isinstance(one, list) else (one, None) for one in answers]
    return [(float(logprob), greedy) for logprob, greedy in pairs]


@pytest.mark.parametrize("name", ["tiny_choice", "tiny_rolling"])
def test_every_likelihood_is_the_same(
    ours: dict[str, Any], theirs: dict[str, Any], name: str
) -> None:
    for mine, other in zip(ours[name], theirs[name], strict=True):
        for (got, got_greedy), (wanted, wanted_greedy) in zip(
            numbers(mine), numbers(other), strict=True
        ):
            assert got == pytest.approx(wanted, abs=TOLERANCE)
            assert got_greedy == wanted_greedy


def test_every_generated_text_is_the_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    texts = [one["resps"] for one in ours["tiny_generate"]]
    assert texts == [one["resps"] for one in theirs["tiny_generate"]]
    assert all(text[0][0] for text in texts)


def test_the_figures_are_the_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name in TASKS:
        for metric, wanted in theirs["results"][name].items():
            if isinstance(wanted, float):
                assert ours["results"][name][metric] == pytest.approx(wanted, rel=1e-4), metric


def test_what_was_cut_is_told(ours: dict[str, Any]) -> None:
    assert "4 of 13 contexts lost tokens at their start" in ours["stderr"]
