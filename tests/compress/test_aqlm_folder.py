"""A whole checkpoint in AQLM's codebooks: written by a recipe, read back, run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.cli import main as cli
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.compress.quantize.aqlm import AQLM
from paredown.compress.quantize.gptq import GPTQ
from paredown.compress.recipe import Recipe
from paredown.compress.recipe_file import parse_recipe
from paredown.compress.recipe_names import find_recipe
from paredown.compress.schemes import resolve_schemes, scheme_rows
from paredown.compress.steps import QuantizeStep
from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.stored.aqlm import NOTE, decode
from paredown.formats.table import FORMATS
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.spec.weight import WeightSpec

SMALL = AQLM(num_codebooks=2, nbits_per_codebook=4, in_group_size=4, max_rounds=2)
FP16 = WeightSpec(dtype="fp16")
MODULE = "model.layers.1.mlp.down_proj"


def recipe(*targets: str, method: AQLM = SMALL) -> Recipe:
    targets = targets or ("layers",)
    return Recipe(
        name="codebooks", steps=(QuantizeStep(quantizer=method, spec=FP16, targets=targets),)
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("source") / "llama"
    make_model("llama", torch.bfloat16, 0).save_pretrained(folder)
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (6, 24)), source="random tokens")


@pytest.fixture(scope="module")
def written(
    source: Checkpoint, calibration: Calibration, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoint:
    output = tmp_path_factory.mktemp("written") / "out"
    result = compress(source, output, recipe(), calibration=calibration)
    assert result.num_quantized == 14
    assert {row.format for row in result.schemes} == {"aqlm-2x4-g4", "as it is"}
    checkpoint = Checkpoint.open(output)
    num_bits = 8 * (output / "model.safetensors").stat().st_size
    assert result.bits_per_weight == num_bits / source.spec.num_parameters()
    return checkpoint


def test_the_folder_reads_back_as_it_was_written(source: Checkpoint, written: Checkpoint) -> None:
    section = json.loads((written.path / "config.json").read_text())["quantization_config"]
    assert section["quant_method"] == "aqlm"
    assert section["linear_weights_not_to_quantize"] == ["lm_head", "lm_head.weight"]
    down = f"{MODULE}."
    stored = {
        name.removeprefix(down): tensor
        for name, tensor in written.tensors.items()
        if name.startswith(down)
    }
    assert set(stored) == {"codes", "codebooks", "scales"}
    additive = decode(stored, SMALL.spec)
    weight = written.linear("down", 1)
    assert weight.spec == FP16
    np.testing.assert_array_equal(weight.dequantize(), additive.dequantize())
    original = source.linear("down", 1).dequantize()
    lost = np.square(weight.dequantize() - original).sum() / np.square(original).sum()
    assert lost < 0.5
    (note,) = written.notes
    assert note.startswith(f"{NOTE} (14 linear layers")


def test_it_runs_on_the_native_core_as_in_pytorch(written: Checkpoint) -> None:
    executor = load_executor(
        written, RunOptions(num_pages=4, threads=ThreadPlan.resolve(1), kv_dtype="fp32")
    )
    ids = list(range(2, 34))
    inputs = SequenceSlice(token_ids=ids, start=0, pages=[0, 1], num_logits=len(ids))
    logits = executor.step([inputs])
    expected = Decoder.from_checkpoint(written)(torch.tensor([ids]))[0].numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-3 * np.abs(expected).max())


def test_a_recipe_of_one_layer_keeps_the_others(
    source: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    compress(source, tmp_path / "out", recipe(MODULE), calibration=calibration)
    written = Checkpoint.open(tmp_path / "out")
    assert list(written.forms) == [MODULE]
    section = written.config["quantization_config"]
    assert isinstance(section, dict)
    kept = section["linear_weights_not_to_quantize"]
    assert MODULE not in kept
    assert len(kept) == 2 * 14
    up = source.linear("up", 1).dequantize()
    np.testing.assert_array_equal(written.linear("up", 1).dequantize(), up)


def test_convert_dequantizes_and_refuses_codes(written: Checkpoint, tmp_path: Path) -> None:
    convert(written, tmp_path / "floats", "fp16")
    floats = Checkpoint.open(tmp_path / "floats")
    np.testing.assert_array_equal(
        floats.linear("q", 0).dequantize(), written.linear("q", 0).dequantize()
    )
    with pytest.raises(UnsupportedError, match="codebook"):
        convert(written, tmp_path / "codes", "gptq")
    assert not (tmp_path / "codes").exists()


def test_recipes_name_the_codebooks(source: Checkpoint) -> None:
    named = find_recipe("aqlm-2x8-g8")
    assert named.needs_calibration
    assert resolve_schemes(named, source)[MODULE].format == "aqlm-2x8-g8"
    (row, head) = scheme_rows(resolve_schemes(find_recipe("aqlm-1x8-g4"), source), source)
    assert (row.format, row.method, head.format) == ("aqlm-1x8-g4", "AQLM", "as it is")
    parsed = parse_recipe(
        {"steps": [{"method": "aqlm", "format": "bf16", "num_codebooks": 1, "beam_size": 2}]}, "x"
    )
    (step,) = parsed.quantize_steps
    assert step.quantizer == AQLM(num_codebooks=1, beam_size=2)


def test_bad_recipes_are_refused_before_work(source: Checkpoint) -> None:
    def resolve(*steps: QuantizeStep) -> object:
        return resolve_schemes(Recipe(name="bad", steps=steps), source)

    with pytest.raises(ConfigError, match="16-bit float"):
        resolve(QuantizeStep(quantizer=SMALL, spec=FORMATS["int2-g32"]))
    with pytest.raises(UnsupportedError, match="do not fill"):
        resolve(QuantizeStep(quantizer=AQLM(in_group_size=5), spec=FP16))
    codebooks = QuantizeStep(quantizer=SMALL, spec=FP16)
    grid = QuantizeStep(quantizer=GPTQ(), spec=FORMATS["int4-g32"], targets=("down",))
    other = QuantizeStep(quantizer=AQLM(), spec=FP16, targets=("down",))
    for beside, words in ((grid, "aqlm and compressed-tensors"), (other, "one shape")):
        with pytest.raises(UnsupportedError, match=words):
            resolve(codebooks, beside)


def test_damaged_configs_are_refused(written: Checkpoint, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((written.path / name).read_bytes())
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for key, value in (
        ("nbits_per_codebook", 17),
        ("nbits_per_codebook", 9),
        ("num_codebooks", True),
        ("in_group_size", 8),
        ("out_group_size", 7),
    ):
        section = config["quantization_config"] | {key: value}
        path.write_text(json.dumps(config | {"quantization_config": section}))
        with pytest.raises(CheckpointError):
            Checkpoint.open(tmp_path)
    section = config["quantization_config"] | {"residual": 2}
    path.write_text(json.dumps(config | {"quantization_config": section}))
    # What nobody knows is told, and the tensors decide.
    assert any("residual" in note for note in Checkpoint.open(tmp_path).notes)


def test_eval_names_the_codebooks_and_tells_the_notes(
    written: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(written.path, tmp_path / "out"))
    write_byte_tokenizer(folder)
    (tmp_path / "text.txt").write_text("It was the best of times, it was the worst of times. ")
    words = ["eval", str(folder), "--text", str(tmp_path / "text.txt")]
    assert cli.main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "aqlm-2x4-g4"
    assert told["notes"] == list(written.notes)
    assert NOTE in told["notes"][0]
    assert cli.main(words) == 0
    assert "aqlm-2x4-g4" in capsys.readouterr().out
