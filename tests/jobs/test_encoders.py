"""Encoders through the jobs: compressed with a proof that a server can check, pruned and recovered,
distilled by each way that suits them."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from drivers.stored_fingerprint import read_fingerprint
from drivers.tiny_training import config
from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.encoder_folder import classifier, embedder
from fakes.tiny_models import make_model
from fakes.tiny_t5 import make_t5, write_t5
from paredown.distill.data.training_data import TrainingDataConfig
from paredown.distill.distill import DistillConfig
from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.evaluate.verify.verification_file import NAME
from paredown.executors.load import load_encoder
from paredown.jobs.compress import compress_and_verify
from paredown.jobs.convert import convert_and_carry
from paredown.jobs.distill import distill_and_verify
from paredown.jobs.verify_config import VerifyConfig
from paredown.models.checkpoint import Checkpoint

TARGET = "compressed-tensors"
WORDS = ("all", "good", "bad", "is", "well", "and", "ill", "that", "ends", "now")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    lines = [
        " ".join(WORDS[(number * step + number) % len(WORDS)] for step in range(4 + number % 5))
        for number in range(60)
    ]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "labels.jsonl"
    lines = [
        {"text": f"{WORDS[number % 10]} {number}", "label": number % 3, "text_pair": "it is so"}
        for number in range(40)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedder(tmp_path_factory.mktemp("models") / "in")


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifier(tmp_path_factory.mktemp("models") / "in")


def compressed(source: Path, output: Path, recipe: str, text: Path):
    return compress_and_verify(
        source,
        output,
        recipe,
        calibration=CalibrationConfig(text=text, num_samples=4, num_tokens=24),
        verify=VerifyConfig(text=text, num_tokens=400),
        num_threads=1,
    )


def test_the_proof_has_cosines_and_a_server_can_check_it(
    source: Path, text: Path, tmp_path: Path
) -> None:
    made = compressed(source, tmp_path / "out", "w8a8-static", text)
    assert made.not_verified is None
    found = made.verification
    assert found is not None
    assert 0.9 < found.compressed.cosine_least <= found.compressed.cosine_mean < 1
    assert 0.9 < found.compressed.rank_agreement <= 1
    assert found.compressed.label_agreement is None
    written = json.loads((tmp_path / "out" / NAME).read_text())
    assert written["compressed"]["cosine_mean"] == found.compressed.cosine_mean
    assert "perplexity" not in written["compressed"]
    assert "special tokens" in written["protocol"]
    checkpoint = Checkpoint.open(tmp_path / "out")
    encoder = load_encoder(checkpoint)
    fingerprint = read_fingerprint(checkpoint.path)
    fingerprint.check_files(checkpoint, encoder)
    assert fingerprint.check_vectors(checkpoint, encoder) == "bit for bit"
    with pytest.raises(CheckpointError, match="that of another model"):
        fingerprint.check_logits(checkpoint, encoder)


@pytest.mark.parametrize(
    "name", ["modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors", "config.json"]
)
def test_a_changed_file_is_found(name: str, source: Path, text: Path, tmp_path: Path) -> None:
    compressed(source, tmp_path / "out", "int8", text)
    path = tmp_path / "out" / name
    data = bytearray(path.read_bytes())
    if name.endswith("safetensors"):
        data[-1] ^= 1
    else:
        data += b" "
    path.write_bytes(data)
    checkpoint = Checkpoint.open(tmp_path / "out")
    fingerprint = read_fingerprint(checkpoint.path)
    with pytest.raises(CheckpointError, match="not the file that was verified"):
        fingerprint.check_files(checkpoint, load_encoder(checkpoint))


def test_labels_are_compared(labels: Path, text: Path, tmp_path: Path) -> None:
    made = compressed(labels, tmp_path / "out", "int8", text)
    assert made.verification is not None
    assert made.verification.compressed.label_agreement > 0.9
    assert made.verification.compressed.rank_agreement is None


def served(path: Path) -> str:
    """Checks the folder as a server does."""
    checkpoint = Checkpoint.open(path)
    encoder = load_encoder(checkpoint)
    fingerprint = read_fingerprint(path)
    fingerprint.check_files(checkpoint, encoder)
    return fingerprint.check_vectors(checkpoint, encoder)


def test_a_conversion_of_the_same_codes_costs_nothing(
    source: Path, text: Path, tmp_path: Path
) -> None:
    before = compressed(source, tmp_path / "int4", "int4-g32", text).verification
    made = convert_and_carry(tmp_path / "int4", tmp_path / "out", TARGET, num_threads=1)
    assert made.not_verified is None
    assert made.verification.compressed.cosine_least == pytest.approx(1, abs=1e-6)
    assert made.verification.compressed.rank_agreement == pytest.approx(1, abs=1e-3)
    assert made.as_json()["verification"]["recipe"] == TARGET
    written = json.loads((tmp_path / "out" / NAME).read_text())
    assert written["source"]["compressed"]["cosine_mean"] == before.compressed.cosine_mean
    assert served(tmp_path / "out") == "bit for bit"


def test_a_conversion_to_other_numbers_is_measured(labels: Path, tmp_path: Path) -> None:
    made = convert_and_carry(labels, tmp_path / "out", "fp16", num_threads=1)
    assert made.not_verified is None
    assert 0.999 < made.verification.compressed.cosine_least < 1
    assert made.verification.compressed.label_agreement > 0.9
    assert "source" not in json.loads((tmp_path / "out" / NAME).read_text())
    assert served(tmp_path / "out") == "bit for bit"


def test_a_source_that_is_not_what_was_verified_is_not_converted(
    source: Path, text: Path, tmp_path: Path
) -> None:
    compressed(source, tmp_path / "int4", "int4-g32", text)
    path = tmp_path / "int4" / "modules.json"
    path.write_text(path.read_text() + " ")
    with pytest.raises(CheckpointError, match="not the file that was verified"):
        convert_and_carry(tmp_path / "int4", tmp_path / "out", TARGET, num_threads=1)
    assert not (tmp_path / "out").exists()
    made = convert_and_carry(tmp_path / "int4", tmp_path / "out", TARGET, verify=False)
    assert (made.verification, made.not_verified) == (None, "--no-verify")
    assert not (tmp_path / "out" / NAME).exists()


def test_a_source_without_a_tokenizer_is_converted_unmeasured(source: Path, tmp_path: Path) -> None:
    """Older folders have a vocab.txt alone."""
    bare = shutil.copytree(source, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    made = convert_and_carry(bare, tmp_path / "out", "bf16")
    assert made.verification is None
    assert "no tokenizer.json" in str(made.not_verified)
    assert Checkpoint.open(tmp_path / "out").spec == Checkpoint.open(source).spec


def test_an_encoder_decoder_is_not_distilled(tmp_path: Path) -> None:
    write_t5(make_t5("gated-untied"), tmp_path / "in")
    with pytest.raises(UnsupportedError, match=r"an encoder-decoder has two.*gptq-int4-g64"):
        distill_and_verify(tmp_path / "in", tmp_path / "out", DistillConfig(train=config(64)))
    assert not (tmp_path / "out").exists()


def test_recovery_brings_vectors_nearer(source: Path, text: Path, tmp_path: Path) -> None:
    before = compressed(source, tmp_path / "before", "wanda-50", text).verification
    after = compressed(source, tmp_path / "after", "wanda-50-recover-8192", text).verification
    assert before is not None
    assert after is not None
    assert after.compressed.cosine_mean > before.compressed.cosine_mean


def test_pruning_ends_at_a_cosine(source: Path, text: Path, tmp_path: Path) -> None:
    free = compressed(source, tmp_path / "free", "wanda-90", text)
    made = compressed(source, tmp_path / "near", "wanda-90-to-cosine-0.95", text)
    assert free.verification is not None
    assert made.verification is not None
    (note,) = (one for one in made.written.notes if "cosine" in one)
    found = re.fullmatch(
        r"pruned ([\d.]+)% of the weights, at most 90%: cosine ([\d.]+) at the least to the "
        r"original, at least 0.95, measured on [\d,]+ texts .*",
        note,
    )
    assert found is not None, note
    assert 0 < float(found[1]) < 90
    assert 0.95 <= float(found[2]) < 1
    assert made.verification.compressed.cosine_least > free.verification.compressed.cosine_least
    assert note in made.verification.notes


def test_nothing_is_pruned_where_every_share_is_too_far(
    source: Path, text: Path, tmp_path: Path
) -> None:
    made = compressed(source, tmp_path / "out", "wanda-90-to-cosine-0.999999-int8", text)
    assert made.written.sparsity is None
    assert any(
        one.startswith("nothing pruned: every share that was tried falls below a cosine")
        for one in made.written.notes
    )
    assert made.verification is not None


def test_each_kind_of_model_has_its_own_limit(source: Path, text: Path, tmp_path: Path) -> None:
    decoder = tmp_path / "decoder"
    make_model("llama", torch.bfloat16, 0).save_pretrained(decoder)
    write_byte_tokenizer(decoder)
    with pytest.raises(UnsupportedError, match=r"predictions.*min_cosine"):
        compressed(source, tmp_path / "out", "wanda-90-to-kl-0.1", text)
    with pytest.raises(UnsupportedError, match=r"vectors of texts.*max_kl"):
        compressed(decoder, tmp_path / "out", "wanda-90-to-cosine-0.9", text)
    reranker = classifier(tmp_path / "reranker", num_labels=1)
    with pytest.raises(UnsupportedError, match=r"one number for a text.*max_loss"):
        compressed(reranker, tmp_path / "out", "wanda-90-to-cosine-0.9", text)
    assert not (tmp_path / "out").exists()


def test_trained_codes_learn_the_originals_vectors(
    source: Path, text: Path, tmp_path: Path
) -> None:
    before = compressed(source, tmp_path / "before", "int4-g32", text).verification
    after = compressed(source, tmp_path / "after", "qad-int4-g32-4000", text).verification
    assert before is not None
    assert after is not None
    assert after.compressed.cosine_mean > before.compressed.cosine_mean


def distilled(teacher: Path, output: Path, method: str, data: Path, tokens: int = 6000):
    return distill_and_verify(
        teacher,
        output,
        DistillConfig(
            train=config(tokens, batch_tokens=128),
            student="every-2",
            method=method,
            data=TrainingDataConfig(paths=(data,), row_tokens=64, held_out=0.0),
        ),
        verify=VerifyConfig(text=data if data.suffix == ".txt" else None, num_tokens=300),
        num_threads=1,
    )


@pytest.mark.parametrize("method", ["soft-label", "tinybert"])
def test_a_student_comes_nearer_to_its_teachers_vectors(
    method: str, source: Path, text: Path, tmp_path: Path
) -> None:
    made = distilled(source, tmp_path / "out", method, text)
    assert made.verification is not None
    assert made.before is not None
    assert made.verification.compressed.cosine_mean > made.before.cosine_mean
    student = Checkpoint.open(tmp_path / "out")
    assert student.spec.num_layers == 2
    assert student.spec.head == Checkpoint.open(source).spec.head


@pytest.mark.parametrize("method", ["hard-label", "soft-label", "tinybert", "kl"])
def test_a_classifier_learns_from_labels_and_from_its_teacher(
    method: str, labels: Path, labelled: Path, tmp_path: Path
) -> None:
    made = distilled(labels, tmp_path / "out", method, labelled)
    training = made.written.training
    assert training.final_loss < training.records[0].loss
    assert made.verification is not None
    assert made.verification.compressed.label_agreement is not None


def test_what_an_encoder_cannot_learn_is_told(
    source: Path, labels: Path, text: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match="predicts no tokens"):
        distilled(source, tmp_path / "out", "gkd", text)
    with pytest.raises(UnsupportedError, match="learns from its teacher alone"):
        distilled(source, tmp_path / "out", "hard-label", text)
    with pytest.raises(ConfigError, match="no labels to learn from"):
        distilled(labels, tmp_path / "out", "hard-label", text)
