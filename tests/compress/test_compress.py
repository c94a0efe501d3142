"""Compressed folders, read by us, by compressed-tensors and by Transformers: the same bits."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from fakes.tiny_models import make_model
from paredown.compress.compress import compress
from paredown.compress.size import weight_bytes
from paredown.errors import CheckpointError, ConfigError, OutputError, UnsupportedError
from paredown.formats.grid_weight import GridWeight
from paredown.formats.integer_steps import integer_steps
from paredown.formats.quantize import quantize
from paredown.formats.table import FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.files.safetensors_file import read_safetensors, write_safetensors
from paredown.models.files.shard_writer import write_shards
from paredown.models.roles import linear_roles

QUANTIZED = [name for name, spec in FORMATS.items() if spec.is_quantized]
# Every form and bit width; tests/formats holds all formats against the library.
SOME = ["int8", "int8-asym", "w8a8", "fp8", "fp8-g128", "int6-g128", "int5-g64-asym", "int4-g32"]
SOME += ["int4-g128-asym", "int3-g64", "int3-g32-asym", "int2-g32", "w4a8-g32"]
STEPS = ["w4a8-g32-qoq", "w4a8-g64-asym-qoq"]
# Every group size divides these.
WIDE = {"hidden_size": 128, "intermediate_size": 256}
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

# What the libraries themselves say when a compressed checkpoint is loaded.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers"),
    pytest.mark.filterwarnings("ignore::UserWarning:compressed_tensors"),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    """A wide Llama in each float dtype, by its name."""
    folders = {}
    for dtype, torch_dtype in TORCH_DTYPES.items():
        folder = tmp_path_factory.mktemp(f"source-{dtype}")
        make_model("llama", torch_dtype, 0, **WIDE).save_pretrained(folder)
        folders[dtype] = Checkpoint.open(folder)
    return folders


def load_with_transformers(folder: Path) -> torch.nn.Module:
    """Dequantized while loading, or by the first forward pass."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]))
    return model


def our_weights(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    return {
        checkpoint.linear_name(role, layer): checkpoint.linear(role, layer).dequantize()
        for layer in range(checkpoint.spec.num_layers)
        for role in linear_roles(checkpoint.spec, 0)
    }


def theirs_of(model: torch.nn.Module, module: str) -> np.ndarray:
    return model.get_submodule(module).weight.detach().float().numpy()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "bf16") for name in SOME + STEPS]
    + [(name, dtype) for name in ("w8a8", "int4-g128-asym", *STEPS) for dtype in ("fp32", "fp16")],
)
def test_transformers_dequantizes_to_our_bits(
    sources, name: str, dtype: str, tmp_path: Path
) -> None:
    result = compress(sources[dtype], tmp_path / "out", name)
    ours = our_weights(Checkpoint.open(tmp_path / "out"))
    model = load_with_transformers(tmp_path / "out")
    assert result.num_quantized == len(ours)
    for module, weight in ours.items():
        theirs = model.get_submodule(module).weight
        assert theirs.dtype == TORCH_DTYPES[dtype]
        assert np.array_equal(theirs.detach().float().numpy(), weight), module
    state = model.state_dict()
    for kept in result.kept:
        source = sources[dtype].tensors[kept].to_float32()
        assert np.array_equal(state[kept].float().numpy(), source), kept


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3", "opt"])
def test_the_other_families_load_too(family: str, tmp_path: Path) -> None:
    make_model(family, torch.bfloat16, 1).save_pretrained(tmp_path / "in")
    compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "int4-g32-asym")
    ours = our_weights(Checkpoint.open(tmp_path / "out"))
    model = load_with_transformers(tmp_path / "out")
    for module, weight in ours.items():
        theirs = model.get_submodule(module).weight.detach().float().numpy()
        assert np.array_equal(theirs, weight), module


@pytest.mark.parametrize("name", QUANTIZED)
def test_the_folder_holds_the_quantized_source(sources, name: str, tmp_path: Path) -> None:
    source = sources["bf16"]
    compress(source, tmp_path / "out", name)
    written = Checkpoint.open(tmp_path / "out")
    values = source.linear("down", 1).dequantize()
    expected = quantize(values, FORMATS[name], "bf16")
    assert np.array_equal(written.linear("down", 1).dequantize(), expected.dequantize())
    assert written.weight_specs()["model.layers.1.mlp.down_proj"] == FORMATS[name]
    assert written.weight_specs()["lm_head"].dtype == "bf16"


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
@pytest.mark.parametrize("name", STEPS)
def test_integer_steps_are_found_in_the_folder(
    sources, name: str, dtype: str, tmp_path: Path
) -> None:
    result = compress(sources[dtype], tmp_path / "out", name)
    assert [row.format for row in result.schemes if row.method == "RTN"] == [name]
    written = Checkpoint.open(tmp_path / "out")
    for layer in range(written.spec.num_layers):
        for role in linear_roles(written.spec, 0):
            weight = written.linear(role, layer)
            assert weight.spec.name == name.removesuffix("-qoq")
            assert integer_steps(weight) is not None
            # The library multiplies codes and group scales, the core integers and row scales.
            assert np.array_equal(weight.at_work(), values_by_steps(weight))


def values_by_steps(weight: GridWeight) -> np.ndarray:
    scales_O, steps_OG = integer_steps(weight)
    half = 8 if weight.zero_points_OG is None else weight.zero_points_OG[..., None].astype(int)
    codes_OGC = weight.values_OI.astype(int).reshape(*steps_OG.shape, -1) - half
    integers_OGC = codes_OGC * steps_OG[..., None].astype(int)
    assert -128 <= integers_OGC.min() <= integers_OGC.max() <= 127
    return integers_OGC.reshape(weight.shape).astype(np.float32) * scales_O[:, None]


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_float_formats_cast_every_tensor(family: str, name: str, tmp_path: Path) -> None:
    make_model(family, torch.float32, 2).save_pretrained(tmp_path / "in")
    result = compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", name)
    assert result.clamped == {}
    original = AutoModelForCausalLM.from_pretrained(tmp_path / "in", dtype="auto").state_dict()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert model.dtype == TORCH_DTYPES[name]
    for key, value in model.state_dict().items():
        assert torch.equal(value, original[key].to(TORCH_DTYPES[name])), key
    written = Checkpoint.open(tmp_path / "out")
    assert 8 * weight_bytes(written) == FORMATS[name].bits * written.spec.num_parameters()


def test_what_fp16_clamps_is_told(tmp_path: Path) -> None:
    model = make_model("llama", torch.bfloat16, 3)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, :2] = 1e6
    model.save_pretrained(tmp_path / "in")
    result = compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "fp16")
    assert result.clamped == {"model.layers.1.mlp.up_proj.weight": 2}


def test_bits_per_weight_count_everything(sources, tmp_path: Path) -> None:
    result = compress(sources["bf16"], tmp_path / "out", "int4-g64-asym")
    spec = sources["bf16"].spec
    linear = spec.num_linear_parameters()
    # 4 of the code, 16 of the scale and 4 of the zero point over 64, and 128 bits of weight_shape.
    bits = linear * (4 + 20 / 64) + (spec.num_parameters() - linear) * 16
    shapes = 128 * spec.num_layers * len(linear_roles(spec, 0))
    assert 8 * weight_bytes(Checkpoint.open(tmp_path / "out")) == bits + shapes
    file_bytes = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert result.file_bytes == file_bytes
    assert result.bits_per_weight == 8 * file_bytes / spec.num_parameters()


def test_config_and_tokenizer_files_come_along(sources, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    make_model("llama", torch.bfloat16, 0).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("the source's own figures")
    compress(Checkpoint.open(folder), tmp_path / "out", "int4-g32")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    wanted = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert names == wanted
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == ["lm_head"]
    assert config["dtype"] == "bfloat16"


def test_a_group_that_does_not_divide_leaves_nothing(tmp_path: Path) -> None:
    make_model("llama", torch.bfloat16, 0).save_pretrained(tmp_path / "in")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UnsupportedError, match=r"layers.0.self_attn.q_proj.weight.*128.*64"):
        compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "int4-g128")
    assert sorted(tmp_path.iterdir()) == before


def test_an_interrupt_leaves_nothing(sources, tmp_path: Path) -> None:
    def interrupt(what: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compress(sources["bf16"], tmp_path / "out", "int8", on_progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_gpt2_is_refused_for_integers(tmp_path: Path) -> None:
    make_model("gpt2", torch.float32, 0).save_pretrained(tmp_path / "in")
    with pytest.raises(UnsupportedError, match="gpt2"):
        compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", "int8")


def test_bad_requests_are_refused(sources, tmp_path: Path) -> None:
    unknown = {"int9": "int9", "int4-g48": "int4-g48", "int4-g32-head": "int4-g32-head"}
    for name, seen in (unknown | {"int8-head-": "saw: ", "int8-head-bf16": "head-bf16"}).items():
        with pytest.raises(ConfigError, match=seen):
            compress(sources["bf16"], tmp_path / "out", name)
    compress(sources["bf16"], tmp_path / "out", "int8")
    with pytest.raises(OutputError, match="exists"):
        compress(sources["bf16"], tmp_path / "out", "int8")
    with pytest.raises(UnsupportedError, match="compressed already"):
        compress(Checkpoint.open(tmp_path / "out"), tmp_path / "again", "int4-g32")


def test_nan_in_the_source_is_named(tmp_path: Path) -> None:
    model = make_model("llama", torch.bfloat16, 3)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[3, 5] = float("nan")
    model.save_pretrained(tmp_path / "in")
    for name in ("int8", "fp16"):
        with pytest.raises(CheckpointError, match=r"layers.0.mlp.up_proj.weight.*\[3, 5\]"):
            compress(Checkpoint.open(tmp_path / "in"), tmp_path / "out", name)


def test_shards_are_bounded_and_indexed(sources, tmp_path: Path) -> None:
    tensors = dict(sources["bf16"].tensors)
    write_shards(tmp_path, tensors.items(), shard_bytes=100_000)
    (tmp_path / "config.json").write_text(json.dumps(dict(sources["bf16"].config)))
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    assert files[0].name == f"model-00001-of-{len(files):05d}.safetensors"
    for path in files:
        held = read_safetensors(path)
        size = sum(held[name].array.nbytes for name in held)
        assert size <= 100_000 or len(held) == 1
    again = Checkpoint.open(tmp_path)
    for name, tensor in tensors.items():
        assert np.array_equal(again.tensors[name].array, tensor.array)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto")
    assert model.num_parameters() == sources["bf16"].spec.num_parameters()


def test_one_tensor_makes_one_file(tmp_path: Path) -> None:
    tensor = StoredTensor(dtype="F32", array=np.zeros(10, np.float32))
    write_shards(tmp_path, [("a", tensor)], shard_bytes=1)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    write_safetensors(tmp_path / "b.safetensors", {"a": tensor})


def test_nan_in_what_stays_in_floats_is_named(tmp_path: Path) -> None:
    model = make_model("llama", torch.bfloat16, 0)
    with torch.no_grad():
        model.model.embed_tokens.weight[3, 5] = float("nan")
    model.save_pretrained(tmp_path / "nan")
    with pytest.raises(CheckpointError, match=r"embed_tokens.*nan at \[3, 5\]"):
        compress(Checkpoint.open(tmp_path / "nan"), tmp_path / "out", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["nan"]
