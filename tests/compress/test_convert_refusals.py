"""What a target of `convert` cannot hold is refused by name, and nothing is left of it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.quantized_folders import (
    MODULE,
    WIDE,
    encode_gptq,
    file_bytes,
    gptq_section,
    reorder,
    write_awq,
    write_folder,
    write_gptq,
)
from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.compress.convert.convert import CONVERSIONS, convert
from paredown.errors import CheckpointError, ConfigError, OutputError, UnsupportedError
from paredown.evaluate.quality.measurement import linear_format_name
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.spec.weight import WeightSpec

INT4 = WeightSpec(dtype="int4", group_size=32)

# What the libraries themselves say when a compressed checkpoint is loaded.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::UserWarning:compressed_tensors"),
]


def compressed(folder: Path, recipe: str, **changes: object) -> Checkpoint:
    make_model("llama", torch.bfloat16, 0, **WIDE, **changes).save_pretrained(folder / "float")
    compress(Checkpoint.open(folder / "float"), folder / "in", recipe)
    return Checkpoint.open(folder / "in")


@pytest.mark.parametrize(
    ("recipe", "target", "words"),
    [
        ("int5-g64", "gptq", r"q_proj: GPTQ holds integers.*int5-g64"),
        ("int7", "gptq-v2", r"q_proj: GPTQ holds.*int7"),
        ("w8a8", "gptq", r"q_proj: GPTQ holds.*w8a8"),
        ("fp8", "gptq", r"q_proj: GPTQ holds.*fp8"),
        ("int8", "awq", r"q_proj: AWQ holds.*int8"),
        ("int8", "bitsandbytes", r"_proj: bitsandbytes' codes end at -127"),
        ("int4-g64", "bitsandbytes", r"q_proj: bitsandbytes holds int8 rows.*int4-g64"),
        ("w8a8", "bitsandbytes", r"q_proj: bitsandbytes holds int8 rows.*w8a8"),
        ("int4-g64-head-int4-g64", "awq", "output layer in floats"),
        ("int4-g64-head-int8", "awq", "lm_head: AWQ holds"),
        ("w4a8-g64-qoq", "gptq", r"q_proj: GPTQ holds.*inputs as they are.*w4a8-g64"),
        ("bf16", "compressed-tensors", "no quantized linear layers"),
    ],
)
def test_what_a_target_cannot_hold_is_refused_by_name(
    recipe: str, target: str, words: str, tmp_path: Path
) -> None:
    source = compressed(tmp_path, recipe, vocab_size=304)
    with pytest.raises(UnsupportedError, match=words):
        convert(source, tmp_path / "out", target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["float", "in"]


def test_codes_in_an_order_of_their_own_are_named_as_stored(tmp_path: Path) -> None:
    """Though they run dequantized."""
    write_gptq(tmp_path / "in", INT4, edit=reorder())
    source = Checkpoint.open(tmp_path / "in")
    assert source.forms[MODULE].spec.name == "fp16"
    assert source.forms[MODULE].name == "int4-g32"
    assert linear_format_name(source) == "int4-g32"


@pytest.mark.parametrize("target", ["compressed-tensors", "gptq", "awq"])
def test_an_order_of_columns_has_no_place_in_quantized_targets(target: str, tmp_path: Path) -> None:
    write_gptq(tmp_path / "in", INT4, edit=reorder())
    with pytest.raises(UnsupportedError, match=rf"{MODULE}: .*act-order"):
        convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", target)


def test_numbers_that_a_target_cannot_hold_name_the_module(tmp_path: Path) -> None:
    write_gptq(
        tmp_path / "in", WeightSpec(dtype="int4", group_size=32, symmetric=False), 2, edit=zero
    )
    with pytest.raises(UnsupportedError, match=rf"{MODULE}: a zero point of 0"):
        convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "gptq")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def zero(tensors: dict[str, StoredTensor]) -> None:
    shape = tensors[f"{MODULE}.qzeros"].shape
    tensors[f"{MODULE}.qzeros"] = StoredTensor(dtype="I32", array=np.zeros(shape, np.int32))


def test_asymmetric_mixtures_cannot_be_told_apart_by_transformers(tmp_path: Path) -> None:
    section = gptq_section(INT4, dynamic={r"+:.*o_proj": {"sym": False}})

    def spec_of(module: str) -> WeightSpec:
        return WeightSpec(dtype="int4", group_size=32, symmetric="o_proj" not in module)

    write_folder(tmp_path / "in", section, spec_of, lambda module, weight: encode_gptq(weight, 1))
    with pytest.raises(UnsupportedError, match="asymmetric"):
        convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "compressed-tensors")
    convert(Checkpoint.open(tmp_path / "in"), tmp_path / "gptq", "gptq")
    assert file_bytes(tmp_path / "gptq") == file_bytes(tmp_path / "in")


def test_damage_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    nan = StoredTensor(dtype="F16", array=np.full((8, 128), np.nan, np.float16))
    write_gptq(
        tmp_path / "in", INT4, edit=lambda tensors: tensors.update({f"{MODULE}.scales": nan})
    )
    for target in ("compressed-tensors", "fp32"):
        with pytest.raises(CheckpointError, match=rf"{MODULE}: .*not finite"):
            convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize("target", CONVERSIONS)
def test_what_exists_is_not_replaced(target: str, tmp_path: Path) -> None:
    write_awq(tmp_path / "in")
    output = tmp_path / ("out.gguf" if target.startswith("gguf") else "out")
    output.mkdir()
    with pytest.raises(OutputError, match="exists"):
        convert(Checkpoint.open(tmp_path / "in"), output, target)
    assert list(output.iterdir()) == []


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    write_awq(tmp_path / "in")
    with pytest.raises(ConfigError, match=r"onnx.*compressed-tensors"):
        convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "onnx")


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(what: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    write_awq(tmp_path / "in")
    for target in ("gptq", "bf16"):
        with pytest.raises(KeyboardInterrupt):
            convert(Checkpoint.open(tmp_path / "in"), tmp_path / "out", target, interrupt)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
