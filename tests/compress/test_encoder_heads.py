"""Heads of encoders in codes: which can have them, and who reads what is written."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from fakes.encoder_folder import classifier, embedder
from fakes.encoder_folders import write_bert, write_splade
from fakes.tiny_encoders import variant
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.convert.convert import convert
from paredown.compress.recipe_file import parse_recipe
from paredown.errors import ConfigError, UnsupportedError
from paredown.executors.encoder_protocol import TokenText
from paredown.executors.load import load_encoder
from paredown.executors.native.memory_plan import plan_encoder_memory
from paredown.executors.run_options import RunOptions
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.spec.kv import KVSpec

FAMILIES = ("bert", "roberta", "mpnet", "distilbert", "modernbert")
TOKENS = [0, 17, 3, 9, 12, 5, 8, 1]
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::UserWarning:compressed_tensors"),
]


def labelled(folder: Path, family: str = "bert") -> Checkpoint:
    variant(family, "labels", num_labels=3)(folder)
    return Checkpoint.open(folder)


def modules(checkpoint: Checkpoint) -> list[str]:
    """The linear layers of the head."""
    names = checkpoint.names.head
    return [name.removesuffix(".weight") for role, name in names.items() if is_matrix(role)]


def is_matrix(role: str) -> bool:
    return role.endswith(".weight") and "norm" not in role


def decoded(checkpoint: Checkpoint) -> np.ndarray:
    decoder = Decoder.from_checkpoint(checkpoint)
    with torch.inference_mode():
        return decoder.apply_head(decoder.encode(torch.tensor([TOKENS])))[0].numpy()


def served(checkpoint: Checkpoint, executor: str = "native") -> np.ndarray:
    options = RunOptions(threads=ThreadPlan.resolve(1), activations="fp32", executor=executor)
    return load_encoder(checkpoint, options).encode([TokenText(token_ids=TOKENS)])[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("recipe", ["int8-head-int8", "int4-g32-head-int8", "w8a8-head-w8a8"])
def test_both_executors_run_the_codes_of_a_head(recipe: str, family: str, tmp_path: Path) -> None:
    source = labelled(tmp_path / "in", family)
    made = compress(source, tmp_path / "out", recipe)
    written = Checkpoint.open(made.path)
    assert modules(source)
    assert all(written.is_coded(module) for module in modules(source))
    expected = decoded(written)
    np.testing.assert_allclose(served(written, "torch"), expected, rtol=1e-4, atol=1e-4)
    if not recipe.startswith("w8a8"):  # whose inputs are rounded
        # Codes of some formats meet inputs in bf16.
        np.testing.assert_allclose(served(written), expected, rtol=0.02, atol=0.01)
    original = decoded(source)
    assert not np.array_equal(expected, original)
    if "int4" not in recipe:  # whose layers are far off in such a small model
        np.testing.assert_allclose(expected, original, rtol=0.1, atol=0.1)


def test_codes_are_those_of_the_format_and_all_else_keeps_its_bits(tmp_path: Path) -> None:
    source = labelled(tmp_path / "in")
    made = compress(source, tmp_path / "out", "bf16-head-int8")
    written = Checkpoint.open(made.path)
    for role in ("head.0", "head.1"):
        found = written.head_weight(role).dequantize()
        expected = quantize(source.head_weight(role).dequantize(), FORMATS["int8"], "bf16")
        assert np.array_equal(found, expected.dequantize())
    assert made.num_quantized == 2
    assert [row.roles for row in made.schemes if row.method] == ["head.0, head.1"]


def test_a_target_may_be_one_step_or_its_module(tmp_path: Path) -> None:
    source = labelled(tmp_path / "in")
    dense, output = modules(source)
    for target, coded in (("head.0", dense), (output, output), (f"re:.*{output}", output)):
        step = {"method": "rtn", "format": "int8", "targets": [target]}
        made = compress(
            source, tmp_path / target.strip(":.*"), parse_recipe({"steps": [step]}, "x")
        )
        written = Checkpoint.open(made.path)
        assert [one for one in modules(written) or [dense, output] if written.is_coded(one)] == [
            coded
        ]


@pytest.mark.parametrize("recipe", ["int8-head-int8", "int4-g32-head-int8"])
def test_transformers_reads_the_same_labels(recipe: str, tmp_path: Path) -> None:
    made = compress(labelled(tmp_path / "in"), tmp_path / "out", recipe)
    model = AutoModelForSequenceClassification.from_pretrained(made.path, dtype=torch.float32)
    with torch.inference_mode():
        found = model.eval()(torch.tensor([TOKENS])).logits[0].numpy()
    np.testing.assert_allclose(found, decoded(Checkpoint.open(made.path)), rtol=1e-3, atol=1e-3)


def test_a_conversion_to_floats_gives_the_same_numbers(tmp_path: Path) -> None:
    compress(labelled(tmp_path / "in"), tmp_path / "coded", "int8-head-int8")
    coded = Checkpoint.open(tmp_path / "coded")
    for target, name in (("fp32", "floats"), ("compressed-tensors", "again")):
        convert(coded, tmp_path / name, target)
        written = Checkpoint.open(tmp_path / name)
        assert written.is_coded(modules(written)[0] if target == "fp32" else "classifier") == (
            target != "fp32"
        )
        np.testing.assert_allclose(decoded(written), decoded(coded), rtol=1e-5, atol=1e-5)


def test_a_recipe_file_rounds_the_head_beside_calibrated_layers(tmp_path: Path) -> None:
    source = labelled(tmp_path / "in")
    steps = [
        {"method": "gptq", "format": "int4-g32"},
        {"method": "rtn", "format": "int8", "targets": ["head"]},
    ]
    texts_NT = np.random.default_rng(5).integers(2, 200, (8, 24))
    made = compress(
        source,
        tmp_path / "out",
        parse_recipe({"steps": steps}, "x"),
        calibration=Calibration(windows_NT=texts_NT, source="random tokens"),
    )
    written = Checkpoint.open(made.path)
    for role in ("head.0", "head.1"):
        expected = quantize(source.head_weight(role).dequantize(), FORMATS["int8"], "fp32")
        assert np.array_equal(written.head_weight(role).dequantize(), expected.dequantize())
    assert {row.roles: row.method for row in made.schemes if row.layers == ""} == {
        "head.0, head.1": "RTN"
    }


def test_splades_transform_is_quantized_and_its_table_is_not(tmp_path: Path) -> None:
    write_splade(tmp_path / "in")
    made = compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "int8-head-int8")
    written = Checkpoint.open(made.path)
    assert written.head_weight("head.token.0").spec.is_quantized
    assert not written.head_weight("head.token.1").spec.is_quantized
    expected = decoded(written)
    np.testing.assert_allclose(served(written), expected, rtol=0.02, atol=0.01)
    np.testing.assert_allclose(served(written, "torch"), expected, rtol=1e-3, atol=1e-3)


def test_a_gguf_file_holds_the_head_of_a_folder_in_codes(tmp_path: Path) -> None:
    write_bert(tmp_path / "in", "labels", num_labels=3)
    convert(Checkpoint.open(tmp_path / "in"), tmp_path / "half", "fp16")  # GGUF's scales are
    compress(Checkpoint.open(tmp_path / "half"), tmp_path / "coded", "int4-g32-head-int8")
    coded = Checkpoint.open(tmp_path / "coded")
    made = convert(coded, tmp_path / "m.gguf", "gguf")
    assert any("codes of the head become floats" in note for note in made.notes)
    written = Checkpoint.open(tmp_path / "m.gguf")
    for role in ("head.0", "head.1"):
        values = coded.head_weight(role).dequantize()
        np.testing.assert_allclose(written.head_weight(role).dequantize(), values, atol=1e-6)


def test_memory_is_planned_for_codes(tmp_path: Path) -> None:
    source = labelled(tmp_path / "in")
    compress(source, tmp_path / "floats", "int8")
    compress(source, tmp_path / "codes", "int8-head-int8")
    planned, held = [], []
    for name in ("floats", "codes"):
        checkpoint = Checkpoint.open(tmp_path / name)
        planned.append(plan_encoder_memory(checkpoint, KVSpec(num_pages=1), 1).weight_bytes)
        held.append(load_encoder(checkpoint).weight_bytes)
    assert planned[1] < planned[0]
    assert held[1] < held[0]


def test_heads_that_stay_floats_are_refused_by_name(tmp_path: Path) -> None:
    dense = Checkpoint.open(embedder(tmp_path / "dense"))
    plain = Checkpoint.open(embedder(tmp_path / "plain", dense=False))
    labels = Checkpoint.open(classifier(tmp_path / "labels"))
    for source, recipe, why in (
        (dense, "int8-head-int8", r"files of its own \(a Dense module\)"),
        (plain, "int8-head-int8", "no linear layer"),
        (labels, "gptq-int4-g32-head-int8", r"inputs of a head.*method: rtn"),
        (labels, "int8-head-w8a8-static", "inputs of a head"),
        (labels, "qad-int4-g32-head-int8-4000", "not trained"),
    ):
        with pytest.raises(UnsupportedError, match=why):
            compress(source, tmp_path / "out", recipe)
    pruned = {"method": "magnitude", "pattern": 50, "targets": ["head"]}
    with pytest.raises(UnsupportedError, match="not pruned"):
        compress(labels, tmp_path / "out", parse_recipe({"steps": [pruned]}, "x"))
    unknown = {"method": "rtn", "format": "int8", "targets": ["head.7"]}
    with pytest.raises(ConfigError, match=r"matches no linear layer.*head\.7"):
        compress(labels, tmp_path / "out", parse_recipe({"steps": [unknown]}, "x"))
    assert not (tmp_path / "out").exists()
