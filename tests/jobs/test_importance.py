"""Importance from a file or from a text, saved where that is asked for."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.convert.importance_file import read_importance
from paredown.errors import CheckpointError, ConfigError, OutputError
from paredown.evaluate.texts.calibration_text import CalibrationConfig
from paredown.formats.gguf.fitted_rows import fitted_rows
from paredown.jobs.convert import convert_and_carry
from paredown.jobs.importance import ImportanceConfig, find_importance
from paredown.models.checkpoint import Checkpoint

SIZES = {"hidden_size": 256, "intermediate_size": 512}
WINDOWS = Calibration(
    windows_NT=np.random.default_rng(5).integers(0, VOCAB_SIZE, (6, 24)), source="random tokens"
)
AUTO = ImportanceConfig(calibration=WINDOWS)
V = "model.layers.1.self_attn.v_proj"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("importance") / "model"
    make_model("llama", torch.float32, 0, **SIZES).save_pretrained(folder)
    write_byte_tokenizer(folder)
    return folder


def convert(folder: Path, out: Path, config: ImportanceConfig, target: str = "gguf-q4_k_m"):
    return convert_and_carry(folder, out, target, verify=False, num_threads=1, importance=config)


def q6_rows(path: Path) -> np.ndarray:
    """The bytes of V in the file."""
    (found,) = [one for one in gguf.GGUFReader(path).tensors if one.name == "blk.1.attn_v.weight"]
    assert found.tensor_type.name == "Q6_K"
    return np.asarray(found.data)


def test_auto_is_what_the_text_shows(folder: Path, tmp_path: Path) -> None:
    made = convert(folder, tmp_path / "m.gguf", AUTO)
    assert made.importance is not None
    assert made.importance.text == "random tokens"
    assert not [note for note in made.written.notes if "importance" in note]
    source = Checkpoint.open(folder)
    values = source.linear("v", 1).dequantize()
    told = made.importance.modules[V].mean_squares()
    np.testing.assert_array_equal(q6_rows(tmp_path / "m.gguf"), fitted_rows("Q6_K", values, told))
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert fields["quantize.imatrix.dataset"].contents() == "random tokens"
    assert fields["quantize.imatrix.entries_count"].contents() == 15
    assert fields["quantize.imatrix.chunks_count"].contents() == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf"]


def test_none_counts_all_columns_alike(folder: Path, tmp_path: Path) -> None:
    made = convert(folder, tmp_path / "m.gguf", ImportanceConfig(source=None))
    assert made.importance is None
    values = Checkpoint.open(folder).linear("v", 1).dequantize()
    np.testing.assert_array_equal(q6_rows(tmp_path / "m.gguf"), fitted_rows("Q6_K", values, None))
    assert "quantize.imatrix.dataset" not in gguf.GGUFReader(tmp_path / "m.gguf").fields


def test_what_is_saved_gives_the_same_file_again(folder: Path, tmp_path: Path) -> None:
    saving = ImportanceConfig(calibration=WINDOWS, save=tmp_path / "i.gguf")
    convert(folder, tmp_path / "one.gguf", saving)
    convert(folder, tmp_path / "two.gguf", ImportanceConfig(source=tmp_path / "i.gguf"))
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()
    found = read_importance(tmp_path / "i.gguf", Checkpoint.open(folder))
    assert len(found.modules) == 15


def test_tensors_without_an_entry_are_told(folder: Path, tmp_path: Path) -> None:
    """As files of llama-imatrix have none of the output layer."""
    saving = ImportanceConfig(calibration=WINDOWS, save=tmp_path / "i.gguf")
    convert(folder, tmp_path / "one.gguf", saving)
    reader = gguf.GGUFReader(tmp_path / "i.gguf")
    writer = gguf.GGUFWriter(tmp_path / "less.gguf", arch="")
    writer.add_type("imatrix")
    for tensor in reader.tensors:
        if not tensor.name.startswith("output"):
            count = 0 if tensor.name == "blk.0.attn_v.weight.counts" else 1
            writer.add_tensor(tensor.name, np.asarray(tensor.data) * np.float32(count))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    source = ImportanceConfig(source=tmp_path / "less.gguf")
    notes = convert(folder, tmp_path / "two.gguf", source).written.notes
    (missing,) = [note for note in notes if "no importance is known" in note]
    assert missing.startswith("output.weight:")
    assert any(note.startswith("blk.0.attn_v.weight: saw no input") for note in notes)


@pytest.mark.parametrize(
    ("place", "match"),
    [
        ("there.gguf", "a file"),
        (".", "a folder"),
        ("m.gguf", "the name of the output"),
        ("none/i.gguf", "no such folder"),
    ],
)
def test_a_place_where_it_could_not_lie_is_refused_before_any_work(
    place: str, match: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "there.gguf").write_bytes(b"old")
    config = ImportanceConfig(calibration=WINDOWS, save=tmp_path / place)
    with pytest.raises(OutputError, match=match):
        convert(folder, tmp_path / "m.gguf", config)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.gguf"]


def test_nothing_to_save_is_refused(folder: Path, tmp_path: Path) -> None:
    config = ImportanceConfig(source=None, save=tmp_path / "i.gguf")
    with pytest.raises(OutputError, match="--importance none"):
        convert(folder, tmp_path / "m.gguf", config)


def test_what_could_not_be_written_is_refused_before_the_text_is_read(
    folder: Path, tmp_path: Path
) -> None:
    missing = CalibrationConfig(text=tmp_path / "no-such-text")
    config = ImportanceConfig(calibration=missing)
    (tmp_path / "m.gguf").write_bytes(b"old")
    with pytest.raises(OutputError, match="exists already"):
        convert(folder, tmp_path / "m.gguf", config)
    with pytest.raises(ConfigError, match=r"Name it .*m\.gguf"):
        convert(folder, tmp_path / "m", config)
    with pytest.raises(CheckpointError, match="no-such-text"):
        convert(folder, tmp_path / "n.gguf", config)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf"]


def test_a_target_that_is_not_fitted_looks_at_no_text(folder: Path, tmp_path: Path) -> None:
    missing = ImportanceConfig(calibration=CalibrationConfig(text=tmp_path / "none"))
    made = convert(folder, tmp_path / "m.gguf", missing, "gguf-q8_0")
    assert made.importance is None


def test_a_killed_walk_goes_on(folder: Path, tmp_path: Path) -> None:
    def kill(what: str, share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    source, out = Checkpoint.open(folder), tmp_path / "m.gguf"
    with pytest.raises(KeyboardInterrupt):
        find_importance(source, out, AUTO, 1, kill)
    assert [path.name for path in tmp_path.iterdir()] == [".m.gguf.calibration"]
    shares: list[float] = []
    find_importance(source, out, AUTO, 1, lambda what, share: shares.append(share))
    assert shares == [0.5]
    assert not list(tmp_path.iterdir())
