"""A conversion carries the proof on: what is written has golden logits of its own."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from drivers.stored_fingerprint import read_fingerprint
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import make_model
from paredown.cli import main as cli
from paredown.errors import CapacityError, CheckpointError, ConfigError
from paredown.evaluate.verify.verification_file import (
    NAME,
    read_verification,
    verification_path,
)
from paredown.executors.load import load_executor
from paredown.executors.run_options import RunOptions
from paredown.jobs import convert as job
from paredown.jobs.convert import convert_and_carry
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint

TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom. " * 3


def compress(base: Path, recipe: str, model: str = "model") -> Path:
    out = base / recipe
    words = ["compress", str(base / model) if model != "default" else model, "-o", str(out)]
    text = ["--text", str(base / "text.txt"), "--tokens", "64"]
    assert cli.main([*words, "--recipe", recipe, *text]) == 0
    return out


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("convert")
    make_model("llama", torch.bfloat16, 0).save_pretrained(base / "model")
    write_byte_tokenizer(base / "model")
    (base / "text.txt").write_text(TEXT)
    return base


@pytest.fixture(scope="module")
def int4(base: Path) -> Path:
    return compress(base, "int4-g32")


@pytest.fixture(scope="module")
def gguf(base: Path) -> Path:
    folder = compress(base, "int4-g32-kv-int8", "default")
    assert cli.main(["convert", str(folder), "-o", str(base / "m.gguf"), "--to", "gguf"]) == 0
    return base / "m.gguf"


def convert(capsys: pytest.CaptureFixture[str], source: Path, out: Path, *words: str) -> dict:
    capsys.readouterr()
    assert cli.main(["convert", str(source), "-o", str(out), "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def check(path: Path) -> str:
    """Checks the folder as `paredown serve` does."""
    fingerprint = read_fingerprint(path)
    assert fingerprint is not None
    checkpoint = Checkpoint.open(path)
    executor = load_executor(checkpoint, RunOptions(num_pages=4, threads=ThreadPlan.resolve(1)))
    fingerprint.check_files(checkpoint, executor)
    return fingerprint.check_logits(checkpoint, executor)


@pytest.mark.parametrize("target", ["gptq", "gptq-v2", "compressed-tensors"])
def test_the_same_codes_give_the_same_logits(capsys, int4: Path, tmp_path, target: str) -> None:
    result = convert(capsys, int4, tmp_path / "out", "--to", target)
    assert result["verification"]["same_logits"] is True
    assert result["not_verified"] is None
    assert check(tmp_path / "out") == "bit for bit"
    ours, theirs = read_verification(tmp_path / "out"), read_verification(int4)
    assert ours is not None
    assert theirs is not None
    assert ours[0]["source"] == theirs[0]
    assert ours[1].golden == theirs[1].golden
    assert (ours[1].weight_files == theirs[1].weight_files) == (target == "compressed-tensors")


def test_logits_that_differ_are_told_and_are_what_is_checked(capsys, base, tmp_path) -> None:
    folder = compress(base, "llm-int8")
    result = convert(capsys, folder, tmp_path / "out", "--to", "bitsandbytes")
    # Its inputs stay in fp32, those of llm-int8 are rounded to int8.
    assert result["verification"]["same_logits"] is False
    assert 0 < result["verification"]["difference"] < 0.1
    assert check(tmp_path / "out") == "bit for bit"
    cli.main(["convert", str(folder), "-o", str(tmp_path / "two"), "--to", "bitsandbytes"])
    assert "which differ from those of llm-int8" in capsys.readouterr().out.replace("\n", " ")


def test_a_gguf_file_has_it_beside_it(capsys, gguf: Path, tmp_path: Path) -> None:
    assert verification_path(gguf).name == f"m.gguf.{NAME}"
    assert check(gguf) == "bit for bit"
    found = read_verification(gguf)
    assert found is not None
    assert found[0]["converted"] == {
        "source": "int4-g32-kv-int8",
        "same_logits": True,
        "difference": pytest.approx(0, abs=1e-4),
    }
    result = convert(capsys, gguf, tmp_path / "back", "--to", "compressed-tensors")
    assert result["verification"]["same_logits"] is True


def test_a_gguf_file_may_be_renamed_and_not_changed(gguf: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other name.gguf"
    shutil.copyfile(gguf, copy)
    shutil.copyfile(verification_path(gguf), verification_path(copy))
    assert check(copy) == "bit for bit"
    raw = bytearray(copy.read_bytes())
    raw[-1] ^= 1
    copy.write_bytes(raw)
    with pytest.raises(CheckpointError, match="is not the file that was verified"):
        check(copy)


def test_the_proof_of_another_file_is_not_taken(capsys, gguf: Path, tmp_path: Path) -> None:
    shutil.copyfile(verification_path(gguf), verification_path(tmp_path / "n.gguf"))
    words = ["convert", str(gguf), "-o", str(tmp_path / "n.gguf"), "--to", "gguf"]
    assert cli.main([*words, "--no-verify"]) == 2
    assert "proof of another file" in capsys.readouterr().err
    assert not (tmp_path / "n.gguf").exists()


def test_a_source_that_is_not_what_was_verified_is_refused(capsys, int4, tmp_path) -> None:
    copy, out = Path(shutil.copytree(int4, tmp_path / "copy")), tmp_path / "out"
    raw = bytearray((copy / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (copy / "model.safetensors").write_bytes(raw)
    words = ["convert", str(copy), "-o", str(out), "--to", "gptq"]
    assert cli.main(words) == 2
    assert "is not the file that was verified" in capsys.readouterr().err
    assert not out.exists()
    result = convert(capsys, copy, out, "--to", "gptq", "--no-verify")
    assert (result["verification"], result["not_verified"]) == (None, "--no-verify")
    assert not (out / NAME).exists()


@pytest.mark.parametrize(("verified", "words"), [(False, "has no"), (True, "other numbers")])
def test_where_there_is_no_proof_to_carry_a_line_says_so(
    capsys, int4: Path, tmp_path: Path, verified: bool, words: str
) -> None:
    copy = Path(shutil.copytree(int4, tmp_path / "copy"))
    if not verified:
        (copy / NAME).unlink()
    out = tmp_path / "out"
    target = "bf16" if verified else "gptq"
    assert cli.main(["convert", str(copy), "-o", str(out), "--to", target]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not verified:" in shown
    assert words in shown
    assert not (out / NAME).exists()


def test_what_does_not_fit_in_memory_is_kept_without_a_proof(
    capsys, int4: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise CapacityError("the model does not fit", seen="1 GB", remedy="Less.")

    monkeypatch.setattr(job, "carry_verification", full)
    result = convert(capsys, int4, tmp_path / "out", "--to", "gptq")
    assert result["not_verified"] == "the model does not fit (1 GB)"
    assert not (tmp_path / "out" / NAME).exists()


def test_a_failure_at_the_end_leaves_nothing(
    capsys, gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise CheckpointError("its logits are no numbers", seen="NaN", remedy="None.")

    monkeypatch.setattr(job, "carry_verification", fail)
    for target, name in (("gguf", "n.gguf"), ("compressed-tensors", "out")):
        words = ["convert", str(gguf), "-o", str(tmp_path / name), "--to", target]
        assert cli.main(words) == 2
    assert list(tmp_path.iterdir()) == []


def test_python_gets_what_the_command_writes_and_says(capsys, int4: Path, tmp_path: Path) -> None:
    said = convert(capsys, int4, tmp_path / "a" / "out", "--to", "gptq")
    shares: list[float] = []
    made = convert_and_carry(
        str(int4),
        str(tmp_path / "b" / "out"),
        "gptq",
        on_progress=lambda what, share: shares.append(share),
    )
    assert made.as_json() == said | {"path": str(tmp_path / "b" / "out")}
    assert shares == sorted(shares)
    files = sorted(path.name for path in (tmp_path / "a" / "out").iterdir())
    assert NAME in files
    assert files == sorted(path.name for path in (tmp_path / "b" / "out").iterdir())
    for name in files:
        texts = [(tmp_path / one / "out" / name).read_bytes() for one in "ab"]
        assert texts[0] == texts[1], name


def test_python_may_leave_the_proof_out(int4: Path, tmp_path: Path) -> None:
    made = convert_and_carry(Checkpoint.open(int4), tmp_path / "out", "gptq", verify=False)
    assert (made.verification, made.not_verified) == (None, "--no-verify")
    assert not (tmp_path / "out" / NAME).exists()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"target": "onnx"}, ConfigError, "no such format"),
        ({"target": "gguf"}, ConfigError, "GGUF"),
        ({"model": "no/such"}, CheckpointError, "no checkpoint folder"),
        ({"num_threads": 0}, ConfigError, "number of threads"),
    ],
)
def test_bad_input_from_python_is_refused(int4, tmp_path, change, error, says) -> None:
    words = {"model": int4, "output": tmp_path / "out", "target": "gptq"} | change
    with pytest.raises(error, match=says):
        convert_and_carry(**words)
    assert list(tmp_path.iterdir()) == []
