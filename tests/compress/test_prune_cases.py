"""Reports from users of comparable tools: zeros that move, layers passed over, shares told wrong,
configs that do not say what the tensors are (C01, C05, C09, C11).

C03 is in cut/test_cut_runs.py, and C07 in tests/distill/test_recover.py,
tests/distill/quantized/test_train_quantized.py and tests/jobs/test_run_recipe.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils.quantization_config import CompressedTensorsConfig

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.compress import compress
from paredown.compress.cut.cut import cut
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.compress.recipe_file import parse_recipe
from paredown.compress.recipe_names import find_recipe
from paredown.errors import ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
QUANTIZED = ["int4-g32", "int4-g32-asym", "gptq-int4-g32", "gptq-int4-g32-asym", "int8", "fp8"]
QUANTIZED += ["awq-int4-g32", "awq-gptq-int4-g32-asym", "hqq-int4-g32-asym", "gptq-int3-g32"]


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    rng = np.random.default_rng(5)
    return Calibration(windows_NT=rng.integers(0, VOCAB_SIZE, (4, 32)), source="random tokens")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("models") / "llama"
    config = SIZES | {"initializer_range": 0.15}
    make_model("llama", torch.float32, 0, **config).save_pretrained(folder)
    return Checkpoint.open(folder)


@pytest.fixture(scope="module", params=["wanda-2of4", "sparsegpt-50"])
def pruned(request, llama, calibration, tmp_path_factory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("pruned") / request.param
    compress(llama, folder, request.param, calibration=calibration)
    return Checkpoint.open(folder)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def pruned_names(checkpoint: Checkpoint) -> list[str]:
    return [f"{name}.weight" for name in checkpoint.names.layer_modules(checkpoint.spec)]


# Transformers says that it takes run_compressed from the argument, and the rest from the folder.
@pytest.mark.filterwarnings("ignore:You passed `quantization_config`")
@pytest.mark.parametrize("recipe", QUANTIZED)
def test_quantizing_a_pruned_folder_keeps_every_zero(
    pruned: Checkpoint, calibration: Calibration, tmp_path: Path, recipe: str
) -> None:
    compress(pruned, tmp_path / "out", recipe, calibration=calibration)
    before = weights(pruned.path)
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "out",
        dtype=torch.float32,
        quantization_config=CompressedTensorsConfig(run_compressed=False),
    )
    after = dict(model.named_parameters())
    for name in pruned_names(pruned):
        assert (after[name][before[name] == 0] == 0).all(), name
    is_2of4 = pruned.pruned[pruned.names.layer_modules(pruned.spec)[0]] == "2of4"
    if is_2of4:
        for name in pruned_names(pruned):
            assert (after[name].reshape(-1, 4) != 0).sum(1).max() <= 2


@pytest.mark.parametrize("pattern", ["50", "2of4"])
@pytest.mark.parametrize("method", ["magnitude", "wanda", "sparsegpt", "rose", "taylor", "obd"])
def test_every_target_has_its_share(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path, method: str, pattern: str
) -> None:
    result = compress(llama, tmp_path / "out", f"{method}-{pattern}", calibration=calibration)
    after = weights(tmp_path / "out")
    for name in pruned_names(llama):
        share = float((after[name] == 0).float().mean())
        assert abs(share - 0.5) <= 1 / after[name].numel(), name
    assert result.sparsity is not None
    assert result.sparsity.share == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "gpt2", "gpt_neox", "phi3"])
def test_layers_of_any_name_are_pruned(tmp_path: Path, family: str) -> None:
    make_model(family, torch.float32, 0).save_pretrained(tmp_path / "model")
    source = Checkpoint.open(tmp_path / "model")
    compress(source, tmp_path / "out", "magnitude-50")
    written = Checkpoint.open(tmp_path / "out")
    for name in written.names.layer_modules(written.spec):
        after = written.tensors[f"{name}.weight"].to_float32()
        assert abs(np.mean(after == 0) - 0.5) <= 1 / after.size, name
    routers = [name for name in written.tensors if name.endswith(("mlp.gate.weight",))]
    for name in routers:
        before = source.tensors[name].to_float32()
        assert np.array_equal(written.tensors[name].to_float32(), before)


def test_the_share_that_is_told_is_that_of_the_file(tmp_path: Path) -> None:
    config = SIZES | {"initializer_range": 0.15}
    model = make_model("llama", torch.float32, 0, **config)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        natural = torch.rand(parameter.shape, generator=generator) < 0.1
        parameter.data[natural] = 0
    model.save_pretrained(tmp_path / "model")
    source = Checkpoint.open(tmp_path / "model")
    document = {
        "steps": [
            {"method": "magnitude", "pattern": 25, "targets": ["up", "down"]},
            {"method": "magnitude", "pattern": 50, "targets": ["q"]},
        ]
    }
    result = compress(source, tmp_path / "out", parse_recipe(document, "mine"))
    after = weights(tmp_path / "out")
    told = result.sparsity
    assert told is not None
    named = list(told.zeros)
    assert len(named) == 3 * SIZES["num_hidden_layers"]
    zeros = {name: int((after[f"{name}.weight"] == 0).sum()) for name in named}
    assert told.zeros == zeros
    total = sum(after[f"{name}.weight"].numel() for name in named)
    assert told.share == pytest.approx(sum(zeros.values()) / total, abs=1e-6)
    for name in named:
        wanted = 0.5 if "q_proj" in name else 0.25
        assert told.as_json()["modules"][name] == pytest.approx(wanted, abs=1e-4)
    record = json.loads((tmp_path / "out" / "config.json").read_text())["paredown"]["pruned"]
    assert set(record) == {"25", "50"}
    assert Checkpoint.open(tmp_path / "out").pruned == {
        name: "50" if "q_proj" in name else "25" for name in named
    }


def test_a_recorded_share_is_held_however_small(
    llama: Checkpoint, calibration: Calibration, tmp_path: Path
) -> None:
    compress(llama, tmp_path / "few", "magnitude-10")
    few = Checkpoint.open(tmp_path / "few")
    compress(few, tmp_path / "out", "gptq-int4-g32", calibration=calibration)
    before, after = weights(few.path), Checkpoint.open(tmp_path / "out")
    for role in ("q", "down"):
        values = after.linear(role, 0).dequantize()
        name = f"{after.linear_name(role, 0)}.weight"
        assert (values[before[name].numpy() == 0] == 0).all()


@pytest.mark.parametrize("score", ["obs", "taylor"])
def test_a_cut_config_says_what_the_tensors_are(
    calibration: Calibration, tmp_path: Path, score: str
) -> None:
    """Scores of the whole model want another width in each layer; all layers get one. Half of the
    heads leave a hidden size that is no longer heads times their size."""
    sizes = {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 6, "initializer_range": 0.15}
    model = make_model("llama", torch.float32, 0, **sizes, **heads)
    model.model.layers[1].mlp.down_proj.weight.data *= 0.01
    model.save_pretrained(tmp_path / "model")
    source = Checkpoint.open(tmp_path / "model")
    assert source.spec.layers[0].attention.head_dim == 16
    steps = (CutNeurons(share=0.37, score=score), CutHeads(share=0.5))
    cut(source, tmp_path / "out", steps, calibration)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["intermediate_size"], config["hidden_size"], config["head_dim"]) == (160, 96, 16)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (3, 3)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights(tmp_path / "out").items()}
    for layer in range(3):
        before = f"model.layers.{layer}"
        assert shapes[f"{before}.mlp.down_proj.weight"] == (96, 160)
        assert shapes[f"{before}.self_attn.o_proj.weight"] == (96, 48)
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        theirs = loaded.eval()(ids).logits
    ours = Decoder.from_checkpoint(Checkpoint.open(tmp_path / "out"))(ids)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_the_hidden_width_is_no_unit_of_a_cut() -> None:
    with pytest.raises(ConfigError, match="ffn, heads, layers, experts"):
        find_recipe("prune-hidden-10")
