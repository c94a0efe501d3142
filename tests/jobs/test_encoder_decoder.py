"""Encoder-decoders through the jobs: compressed with a proof that a server can check."""

import json
from pathlib import Path

import pytest
import torch

from drivers.stored_fingerprint import read_fingerprint
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_t5 import START, make_t5, write_t5
from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.errors import UnsupportedError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.verify.verification_file import NAME
from paredown.executors.load import load_executor
from paredown.jobs.calibration_windows import calibration_windows
from paredown.jobs.compress import CompressedCheckpoint, compress_and_verify
from paredown.jobs.convert import convert_and_carry
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint
from paredown.optimize.optimize import OptimizeConfig, optimize

RECIPES = ["int8", "w8a8-static", "gptq-int4-g32", "awq-int4-g32", "smoothquant-w8a8"]
RECIPES += ["gptq-int4-g32-head-int8"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "in"
    write_t5(make_t5("gated-tied"), folder)
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(f"{number} and {number * number} are even." for number in range(200)))
    return path


def compressed(source: Path, output: Path, recipe: str, text: Path | None) -> CompressedCheckpoint:
    return compress_and_verify(
        source,
        output,
        recipe,
        calibration=CalibrationConfig(text=text, num_samples=4, num_tokens=48),
        verify=VerifyConfig(text=text, num_tokens=300),
        num_threads=1,
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_ends_in_a_proof_that_a_server_can_check(
    recipe: str, source: Path, text: Path, tmp_path: Path
) -> None:
    made = compressed(source, tmp_path / "out", recipe, text)
    assert made.not_verified is None
    found = made.verification
    assert found is not None
    assert 0 < found.compressed.kl_divergence < 0.3
    assert 0.5 < found.compressed.top1_agreement <= 1
    # The layers of the encoder, and then those of the decoder.
    assert [one.layer for one in found.layer_errors] == list(range(5))
    assert all(0 < error < 1 for one in found.layer_errors for error in (one.own, one.accumulated))
    protocol = json.loads((tmp_path / "out" / NAME).read_text())["protocol"]
    assert "300 tokens" in protocol
    assert "its encoder reads" in protocol
    checkpoint = Checkpoint.open(tmp_path / "out")
    executor = load_executor(checkpoint)
    fingerprint = read_fingerprint(checkpoint.path)
    fingerprint.check_files(checkpoint, executor)
    assert fingerprint.check_logits(checkpoint, executor) == "bit for bit"
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    answers = [
        LLM(
            tmp_path / "out", executor=name, num_pages=40, num_threads=1, activations="fp32"
        ).generate(["An even number"], params)[0]
        for name in ("native", "torch")
    ]
    native, torch_own = answers
    assert len(native.token_ids) == 8
    # The torch executor reads inputs in more digits where the recipe rounds them.
    if "w8a8" not in recipe:
        assert torch_own.token_ids == native.token_ids


def test_without_a_text_the_decoder_samples_its_own(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAREDOWN_DATA", raising=False)
    made = compressed(source, tmp_path / "out", "gptq-int4-g32", None)
    assert made.verification is not None
    assert "samples itself to random tokens" in made.verification.protocol
    assert made.written.calibration is not None
    assert "samples itself" in made.written.calibration


def test_each_side_is_calibrated_on_its_part_of_a_window(source: Path, text: Path) -> None:
    checkpoint = Checkpoint.open(source)
    found = calibration_windows(
        checkpoint, CalibrationConfig(text=text, num_samples=3, num_tokens=41), 1
    )
    assert found.windows_NT.shape == (3, 20)
    assert found.answers_NT is not None
    assert found.answers_NT.shape == (3, 21)
    assert (found.answers_NT[:, 0] == START).all()
    written = text.read_text()
    llm = LLM(source, num_pages=8, num_threads=1)
    for read, answer in zip(found.windows_NT, found.answers_NT, strict=True):
        assert llm.tokenizer.decode([*read.tolist(), *answer[1:].tolist()]) in written


def test_a_proof_is_carried_into_another_format(text: Path, tmp_path: Path) -> None:
    write_t5(make_t5("relu-untied").half(), tmp_path / "fp16")
    write_byte_tokenizer(tmp_path / "fp16")
    compressed(tmp_path / "fp16", tmp_path / "in", "gptq-int4-g32", text)
    made = convert_and_carry(tmp_path / "in", tmp_path / "out", "gptq", num_threads=1)
    assert made.verification is not None
    assert made.verification.same_logits


def test_a_search_over_recipes_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="one stack of layers"):
        optimize(source, OptimizeConfig(output=tmp_path / "out", report=None))
    with pytest.raises(UnsupportedError, match="only quantized"):
        compress_and_verify(source, tmp_path / "out", "prune-ffn-25", num_threads=1)
    assert not list(tmp_path.iterdir())
