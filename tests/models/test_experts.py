"""Mixtures of experts as specs, names and checkpoints."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fakes.specs import silu_experts
from fakes.tiny_models import VARIANTS, make_model
from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.check_tensors import linear_modules, router_modules
from paredown.models.checkpoint import Checkpoint
from paredown.models.config import spec_from_config
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.mixture_of_experts import choose_experts
from paredown.models.decoder.points import input_point
from paredown.spec.experts import expert_index, role_kind

# hidden size, layers, heads, key-value heads, vocabulary, experts, experts of a token, their size;
# parameters and those of a token, as their cards say.
PUBLISHED = {
    "Mixtral-8x7B": (4096, 32, 32, 8, 32000, 8, 2, 14336, 46.7e9, 12.9e9),
    "Mixtral-8x22B": (6144, 56, 48, 8, 32768, 8, 2, 16384, 141e9, 39e9),
    "Qwen3-30B-A3B": (2048, 48, 32, 4, 151936, 128, 8, 768, 30.5e9, 3.3e9),
    "Qwen3-235B-A22B": (4096, 94, 64, 4, 151936, 128, 8, 1536, 235e9, 22e9),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_their_published_sizes(name: str) -> None:
    hidden, layers, heads, kv_heads, vocabulary, num, chosen, size, total, active = PUBLISHED[name]
    is_mixtral = name.startswith("Mixtral")
    spec = spec_from_config(
        {
            "model_type": "mixtral" if is_mixtral else "qwen3_moe",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": 128,
            "vocab_size": vocabulary,
            "max_position_embeddings": 4096,
            "intermediate_size": size,
            "moe_intermediate_size": size,
            "num_local_experts" if is_mixtral else "num_experts": num,
            "num_experts_per_tok": chosen,
        }
    )
    assert spec.num_parameters() == pytest.approx(total, rel=5e-3)
    assert spec.num_active_parameters() == pytest.approx(active, rel=2e-2)
    routers = layers * hidden * num
    inactive = 3 * layers * (num - chosen) * hidden * size
    assert spec.num_parameters() - spec.num_active_parameters() == inactive
    others = spec.num_parameters() - spec.num_linear_parameters()
    norms = hidden * (2 * layers + 1) + (0 if is_mixtral else 2 * 128 * layers)
    assert others == 2 * vocabulary * hidden + routers + norms


@pytest.mark.parametrize("layer", [0, 1])
def test_a_dense_layer_between_layers_with_experts(layer: int, tmp_path: Path) -> None:
    VARIANTS["qwen2-moe-every-second"](tmp_path, torch.float32, 0)
    spec = Checkpoint.open(tmp_path).spec
    assert spec.layers[layer].has_experts == (layer == 1)
    roles = list(spec.linear_shapes(layer))
    assert ("down" in roles) == (layer == 0)
    assert ("experts.5.gate" in roles) == (layer == 1)
    assert ("shared.up" in roles) == (layer == 1)
    assert list(spec.router_shapes(layer)) == (["router", "shared_gate"] if layer else [])
    num_roles = 4 + (3 * 7 if layer else 3)
    assert len(roles) == num_roles
    assert len(spec.layers[layer].active_shapes(spec.hidden_size)) == 4 + (3 * 3 if layer else 3)


def test_roles_and_points() -> None:
    assert role_kind("experts.12.gate") == "experts.gate"
    assert role_kind("shared.up") == "shared.up"
    assert expert_index("experts.12.gate") == 12
    assert expert_index("experts.gate") is None
    assert input_point("experts.3.gate") == input_point("experts.3.up") == "experts.3.input"
    assert input_point("experts.3.down") == "experts.3.down_input"
    # The shared expert reads what the router does.
    assert input_point("shared.gate") == "mlp_input"
    assert input_point("shared.down") == "shared.down_input"


@pytest.mark.parametrize(
    ("variant", "expert", "router"),
    [
        ("mixtral", "model.layers.1.block_sparse_moe.experts.3.w3", "block_sparse_moe.gate"),
        ("qwen2-moe", "model.layers.1.mlp.experts.3.up_proj", "mlp.gate"),
        ("qwen3-moe", "model.layers.1.mlp.experts.3.up_proj", "mlp.gate"),
    ],
)
def test_names_are_those_of_published_checkpoints(
    variant: str, expert: str, router: str, tmp_path: Path
) -> None:
    VARIANTS[variant](tmp_path, torch.float32, 0)
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.linear_name("experts.3.up", 1) == expert
    assert checkpoint.names.router("router", 1) == f"model.layers.1.{router}"
    stored = load_file(tmp_path / "model.safetensors")
    values = checkpoint.linear("experts.3.up", 1).values_OI
    assert torch.equal(torch.from_numpy(values.copy()), stored[f"{expert}.weight"])
    modules = [module.name for module in linear_modules(checkpoint.spec, checkpoint.names)]
    assert len(set(modules)) == len(modules)
    assert not set(modules) & set(router_modules(checkpoint.spec, checkpoint.names))


@pytest.mark.parametrize("lost", ["mlp.experts.5.up_proj", "mlp.gate", "mlp.shared_expert_gate"])
def test_a_lost_tensor_is_named(lost: str, tmp_path: Path) -> None:
    VARIANTS["qwen2-moe"](tmp_path, torch.float32, 0)
    path = tmp_path / "model.safetensors"
    stored = load_file(path)
    del stored[f"model.layers.1.{lost}.weight"]
    save_file(stored, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"layers.1.{lost}.weight' is missing"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"num_experts": 2**31 - 1}, r"mlp.gate.weight' has the wrong shape"),
        ({"num_experts": 7}, r"mlp.gate.weight' has the wrong shape"),
        ({"num_experts_per_tok": 7}, "more experts than there are"),
        ({"num_experts_per_tok": 0}, "'num_experts_per_tok'"),
        ({"moe_intermediate_size": 64}, r"experts.0.up_proj.weight' has the wrong shape"),
        ({"mlp_only_layers": "all"}, "'mlp_only_layers'"),
        ({"mlp_only_layers": [True]}, "'mlp_only_layers'"),
        ({"decoder_sparse_step": 0}, "'decoder_sparse_step'"),
        ({"mlp_only_layers": [0]}, r"layers.0.mlp.up_proj.weight' is missing"),
    ],
)
def test_configs_that_do_not_fit(changes: dict[str, object], what: str, tmp_path: Path) -> None:
    """None of them ends in endless work."""
    VARIANTS["qwen2-moe"](tmp_path, torch.float32, 0)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(CheckpointError, match=what):
        Checkpoint.open(tmp_path)


def test_windows_that_change_from_layer_to_layer_are_refused(tmp_path: Path) -> None:
    VARIANTS["qwen2-moe"](tmp_path, torch.float32, 0)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_sliding_window": True}))
    with pytest.raises(UnsupportedError, match="use_sliding_window"):
        Checkpoint.open(tmp_path)


def test_no_experts_are_a_dense_model(tmp_path: Path) -> None:
    make_model("qwen3", torch.float32, 0).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    no_experts = {"model_type": "qwen3_moe", "num_experts": 0, "num_experts_per_tok": 2}
    path.write_text(json.dumps(json.loads(path.read_text()) | no_experts))
    checkpoint = Checkpoint.open(tmp_path)
    assert not checkpoint.spec.has_experts
    assert checkpoint.spec.num_active_parameters() == checkpoint.spec.num_parameters()


def test_equal_shares_go_to_the_lower_index() -> None:
    logits_NE = torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    experts = silu_experts(num=5, num_per_token=2, size=1, is_normalized=True).experts
    weights_NK, chosen_NK = choose_experts(logits_NE, experts)
    assert chosen_NK.tolist() == [[1, 2], [0, 1]]
    assert torch.allclose(weights_NK, torch.full((2, 2), 0.5))


def test_what_flows_into_experts_passes_their_points(tmp_path: Path) -> None:
    VARIANTS["qwen2-moe"](tmp_path, torch.float32, 0)
    decoder = Decoder.from_checkpoint(Checkpoint.open(tmp_path))
    rows: dict[str, int] = {}

    def tap(point: str, x: torch.Tensor) -> torch.Tensor:
        if "." in point:
            rows[point] = x.shape[0] if x.ndim == 2 else x.shape[0] * x.shape[1]
        return x

    decoder.layers[0].tap = tap
    decoder(torch.arange(2, 32).reshape(2, 15))
    inputs = {point: count for point, count in rows.items() if point.endswith(".input")}
    assert sum(inputs.values()) == 2 * 30
    for point, count in inputs.items():
        assert rows[point.replace(".input", ".down_input")] == count
    assert rows["shared.down_input"] == 30
