"""Experts in GGUF: all of a layer in one tensor, the router in floats."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from fakes.byte_tokenizer import write_byte_tokenizer
from fakes.gguf_models import NO_WORDS, write_pair
from fakes.tiny_models import make_model
from fakes.unseen_experts import leave_out_experts
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.importance_file import read_importance, write_importance
from paredown.compress.convert.write_gguf import write_gguf
from paredown.compress.importance import ColumnImportance, Importance
from paredown.errors import CheckpointError, UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import RunOptions
from paredown.formats.gguf import q8_0
from paredown.formats.gguf.fitted_rows import fitted_rows
from paredown.jobs.convert import ConvertedCheckpoint, convert_and_carry
from paredown.jobs.importance import ImportanceConfig
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.gguf.file import read_gguf, write_gguf_file
from paredown.models.gguf.header import NewTensor

UNSEEN = 3
SIZES = {"hidden_size": 256, "intermediate_size": 512}


def stored(path: Path) -> dict[str, gguf.ReaderTensor]:
    return {one.name: one for one in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("variant", ["mixtral", "qwen2-moe", "qwen3-moe"])
def test_all_experts_of_a_layer_are_one_tensor(variant: str, tmp_path: Path) -> None:
    source, _ = write_pair(tmp_path, variant, torch.float32)
    found, experts = stored(tmp_path / "model.gguf"), source.spec.layers[1].experts
    assert experts is not None
    for kind in ("gate", "up", "down"):
        ours = [
            source.linear(f"experts.{index}.{kind}", 1).dequantize() for index in range(experts.num)
        ]
        np.testing.assert_array_equal(found[f"blk.1.ffn_{kind}_exps.weight"].data, np.stack(ours))
    router = found["blk.1.ffn_gate_inp.weight"]
    assert router.tensor_type.name == "F32"
    np.testing.assert_array_equal(router.data, source.router("router", 1).to_float32())
    if experts.shared_size is not None:
        assert list(found["blk.1.ffn_gate_inp_shexp.weight"].shape) == [source.spec.hidden_size]


@pytest.mark.parametrize("formats", ["gguf-q8_0", "gguf-q4_0"])
def test_codes_of_experts_run_natively_and_are_written_again(formats: str, tmp_path: Path) -> None:
    source, found = write_pair(tmp_path, "mixtral", formats=formats)
    quantize = GGUF_FORMATS[formats].linear.quantize
    assert quantize is not None
    for role in ("experts.2.gate", "experts.3.down", "q"):
        expected = quantize(source.linear(role, 1).dequantize())
        np.testing.assert_array_equal(found.linear(role, 1).at_work(), expected.at_work())
    ids = list(range(5, 45))
    options = RunOptions(num_pages=4, kv_dtype="fp32", activations="fp32")
    executor = load_executor(found, options)
    logits = executor.step([SequenceSlice(ids, 0, [0, 1, 2], len(ids))])
    with torch.no_grad():
        plain = Decoder.from_checkpoint(found)(torch.tensor([ids]))[0].numpy()
    same = (logits.argmax(axis=1) == plain.argmax(axis=1)).mean()
    assert same > 0.9
    write_gguf(found, tmp_path / "again.gguf", vocabulary=NO_WORDS)
    first, again = stored(tmp_path / "model.gguf"), stored(tmp_path / "again.gguf")
    assert first.keys() == again.keys()
    for name, tensor in first.items():
        np.testing.assert_array_equal(again[name].data, tensor.data)


def test_experts_in_several_formats_are_refused_by_name(tmp_path: Path) -> None:
    """GGUF has one type for all of a layer."""
    source, found = write_pair(tmp_path, "mixtral", formats="gguf-q8_0")
    name = source.linear_name("experts.2.up", 1)
    blocks = dict(found.blocks)
    blocks[f"{name}.weight"] = GGUF_FORMATS["gguf-q4_0"].linear
    mixed = Checkpoint(**{**vars(found), "blocks": blocks})
    with pytest.raises(UnsupportedError, match=rf"{name}: GGUF holds all experts .* one format"):
        write_gguf(mixed, tmp_path / "mixed.gguf", vocabulary=NO_WORDS)


def test_a_quantized_router_is_refused(tmp_path: Path) -> None:
    write_pair(tmp_path, "mixtral")
    file = read_gguf(tmp_path / "model.gguf")
    tensors, rows = [], []
    for name, place in file.places.items():
        raw, block = file.rows(name), place.block
        if name == "blk.0.ffn_gate_inp.weight":
            values = raw.reshape(-1).view(np.float32).reshape(place.shape)
            block, raw = q8_0.FORMAT, gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        tensors.append(NewTensor(name=name, block=block, shape=place.shape))
        rows.append(raw)
    write_gguf_file(tmp_path / "bad.gguf", file.metadata, tensors, rows)
    with pytest.raises(
        CheckpointError, match=r"'blk\.0\.ffn_gate_inp\.weight' must be floats.*Q8_0"
    ):
        Checkpoint.open(tmp_path / "bad.gguf")


def test_importance_of_experts_goes_both_ways(tmp_path: Path) -> None:
    """As llama-imatrix has it: sums of all experts side by side, and a count for each."""
    make_model("mixtral", torch.float32, 0).save_pretrained(tmp_path / "model")
    source, rng = Checkpoint.open(tmp_path / "model"), np.random.default_rng(3)
    modules = {
        source.linear_name(f"experts.{expert}.up", 1): ColumnImportance(
            sum_squares_I=rng.random(64, np.float32), num_rows=float(expert)
        )
        for expert in range(4)
    }
    told = Importance(modules=modules, text="t", num_windows=1, num_tokens=1)
    write_importance(tmp_path / "i.gguf", told, source)
    found = stored(tmp_path / "i.gguf")
    assert list(found["blk.1.ffn_up_exps.weight.in_sum2"].shape) == [64, 4]
    assert found["blk.1.ffn_up_exps.weight.counts"].data.reshape(-1).tolist() == [0, 1, 2, 3]
    again = read_importance(tmp_path / "i.gguf", source)
    assert again.modules.keys() == modules.keys()
    for name, one in modules.items():
        assert again.modules[name].num_rows == one.num_rows
        np.testing.assert_array_equal(again.modules[name].sum_squares_I, one.sum_squares_I)


def test_e11_an_expert_that_no_token_was_sent_to(tmp_path: Path) -> None:
    """Case E11: it is fitted as without importance, in its siblings' type, and named."""
    leave_out_experts(tmp_path / "model", "mixtral", [UNSEEN], num_local_experts=4, **SIZES)
    source = Checkpoint.open(tmp_path / "model")
    windows = np.random.default_rng(5).integers(0, 300, (2, 100))
    config = ImportanceConfig(
        calibration=Calibration(windows_NT=windows, source="random tokens"),
        save=tmp_path / "i.gguf",
    )
    result = convert_with(source, tmp_path / "m.gguf", config)
    importance = result.importance
    assert importance is not None
    assert all(np.isfinite(one.sum_squares_I).all() for one in importance.modules.values())
    (note,) = [note for note in result.written.notes if "saw no input" in note]
    assert f"blk.0.ffn_up_exps.weight (expert {UNSEEN})" in note
    assert "(expert 0)" not in note
    found = stored(tmp_path / "m.gguf")["blk.0.ffn_up_exps.weight"]
    assert found.tensor_type.name == "Q4_K"
    for expert in range(4):
        module = source.linear_name(f"experts.{expert}.up", 0)
        values = source.linear(f"experts.{expert}.up", 0).dequantize()
        told = importance.modules[module].mean_squares()
        assert (told is None) == (expert == UNSEEN)
        np.testing.assert_array_equal(found.data[expert], fitted_rows("Q4_K", values, told))
    again = read_importance(tmp_path / "i.gguf", source)
    assert again.modules[source.linear_name(f"experts.{UNSEEN}.up", 0)].num_rows == 0


def convert_with(source: Checkpoint, path: Path, config: ImportanceConfig) -> ConvertedCheckpoint:
    write_byte_tokenizer(source.path)
    return convert_and_carry(
        source.path, path, "gguf-q4_k_m", verify=False, num_threads=1, importance=config
    )


def test_e11_int4_codes_of_such_an_expert_are_those_of_its_siblings(tmp_path: Path) -> None:
    leave_out_experts(tmp_path / "model", "mixtral", [UNSEEN], num_local_experts=4)
    source = Checkpoint.open(tmp_path / "model")
    windows = np.random.default_rng(5).integers(0, 300, (2, 100))
    calibration = Calibration(windows_NT=windows, source="random tokens")
    compress(source, tmp_path / "gptq", "gptq-int4-g32", calibration=calibration)
    compress(source, tmp_path / "plain", "int4-g32")
    fitted, plain = Checkpoint.open(tmp_path / "gptq"), Checkpoint.open(tmp_path / "plain")
    role = f"experts.{UNSEEN}.up"
    assert fitted.linear(role, 0).spec == fitted.linear("experts.0.up", 0).spec
    weight = source.linear(role, 0).dequantize()
    errors = [
        float(np.square(one.linear(role, 0).dequantize() - weight).sum()) for one in (fitted, plain)
    ]
    assert errors[0] < 1.1 * errors[1]
