"""`paredown serve` checks verification.json before it answers."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.cli.main import main

COMMAND = [sys.executable, "-m", "paredown.cli.main", "serve", "--port", "0", "--json"]


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("serve")
    make_model("llama", torch.bfloat16, 0).save_pretrained(base / "model")
    write_byte_tokenizer(base / "model")
    out = str(base / "out")
    assert main(["compress", str(base / "model"), "-o", out, "--recipe", "w8a8"]) == 0
    return base / "out"


@pytest.fixture
def copy(verified: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(verified, tmp_path / "copy"))


def serve_until_ready(*words: str) -> tuple[dict, list[str]]:
    """What it announces, and the lines that it said on the way; after those of the checkpoint come
    one with the arithmetic of its pages and one with its threads."""
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        ready = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        *said, pages, threads, budget = process.stderr.read().splitlines()
        assert pages.startswith("KV pages: ")
        assert threads.startswith("threads: ")
        assert budget.startswith("step budget: ")
        assert process.wait(30) == 0
    return ready, said


def refusal(*words: str) -> dict:
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)["error"]


def test_what_was_verified_is_served(verified: Path) -> None:
    ready, said = serve_until_ready(str(verified), "--kv-dtype", "int8")
    assert ready["model"] == "out"
    assert said == ["verified: the logits of verification.json, bit for bit"]


def test_with_attention_sinks_the_same_is_verified_and_the_pages_are_told(verified: Path) -> None:
    words = ("--attention-sinks", "4", "--attention-window", "60")
    _, said = serve_until_ready(str(verified), *words)
    assert said == [
        "verified: the logits of verification.json, bit for bit",
        "attention sinks: every token sees the first 4 and the last 60 tokens; texts have no end",
    ]


def test_inputs_that_are_read_otherwise_are_told_and_no_logits_are_compared(
    verified: Path,
) -> None:
    _, said = serve_until_ready(str(verified), "--activations", "bf16")
    assert said == [
        "verified: the files of verification.json, not its logits: inputs are read bf16, and were "
        "verified as the formats say"
    ]


def test_a_verification_with_chosen_inputs_is_told_and_holds_with_them(
    verified: Path, tmp_path: Path
) -> None:
    words = ["compress", str(verified.parent / "model"), "-o", str(tmp_path / "out")]
    assert main([*words, "--recipe", "int4-g32", "--activations", "bf16", "--tokens", "64"]) == 0
    proof = json.loads((tmp_path / "out" / "verification.json").read_text())
    assert proof["recipe"] == "int4-g32-on-bf16"
    _, said = serve_until_ready(str(tmp_path / "out"))
    assert said == ["verified: the logits of verification.json, bit for bit"]
    _, said = serve_until_ready(str(tmp_path / "out"), "--activations", "int8_group")
    assert said == [
        "verified: the files of verification.json, not its logits: inputs are read int8_group, and "
        "were verified as the formats say"
    ]


def test_without_a_verification_it_serves_and_says_so_in_one_line(copy: Path) -> None:
    (copy / "verification.json").unlink()
    _, said = serve_until_ready(str(copy))
    assert said == [f"not verified: {copy} has no verification.json"]


def test_a_damaged_checkpoint_is_refused_unless_asked_for(copy: Path) -> None:
    raw = bytearray((copy / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (copy / "model.safetensors").write_bytes(raw)
    error = refusal(str(copy))
    assert error["type"] == "CheckpointError"
    assert "model.safetensors is not the file that was verified" in error["what"]
    assert "--no-verify" in error["remedy"]
    _, said = serve_until_ready(str(copy), "--no-verify")
    assert said == []


def test_a_truncated_verification_is_refused(copy: Path) -> None:
    path = copy / "verification.json"
    path.write_bytes(path.read_bytes()[:1000])
    assert "verification.json is not valid JSON" in refusal(str(copy))["what"]
