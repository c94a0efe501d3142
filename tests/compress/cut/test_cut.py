"""Cut checkpoints of every family: what is left computes what it computed, and Transformers loads
it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, VOCAB_SIZE, variant
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.cut.cut import cut
from paredown.compress.cut.experts import CutExperts
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.compress.cut.layers import CutLayers
from paredown.compress.cut.method import Cut, CutResult
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.write import write_decoder
from paredown.spec.experts import Experts

ALL_VARIANTS = (
    VARIANTS
    | DECODER_VARIANTS
    | {
        "wide-experts": variant(
            "qwen2_moe", moe_intermediate_size=96, shared_expert_intermediate_size=192
        ),
        "opt-wide": variant("opt", ffn_dim=192),
        "llama-four-layers": variant("llama", num_hidden_layers=4),
        "mixed-experts": variant(
            "qwen2_moe", decoder_sparse_step=2, norm_topk_prob=True, num_hidden_layers=4
        ),
    }
)
IDS = torch.arange(2, 42).reshape(2, 20)
WINDOWS = np.random.default_rng(3).integers(0, VOCAB_SIZE, (6, 48))
CALIBRATION = Calibration(windows_NT=WINDOWS, source="random tokens")
NEURONS = CutNeurons(share=1 / 3)
HEADS = CutHeads(share=0.5)
# What Transformers makes of these is tested on folders of theirs (tests/models).
WIDE = (
    "llama-biases", "llama-head-dim", "qwen2", "qwen3", "phi3-partial-window",
    "granite", "granite-hybrid-dense", "smollm3", "starcoder2", "gemma", "gemma2", "gemma3",
    "ministral", "mixtral", "wide-experts",
)  # fmt: skip
# Families whose config has no size of heads, or whose norms cover all heads.
WIDE_WITHOUT_HEADS = ("gpt2-untied", "opt-wide", "gpt-neox", "gpt-neox-sequential", "phi", "olmo2")


def opened(name: str, folder: Path) -> Checkpoint:
    ALL_VARIANTS[name](folder, torch.float32, 3)
    return Checkpoint.open(folder)


def made(source: Checkpoint, output: Path, steps: Sequence[Cut]) -> tuple[Checkpoint, CutResult]:
    result = cut(source, output, steps, CALIBRATION)
    return Checkpoint.open(output), result


def downs(layer: Layer) -> list[torch.nn.Linear]:
    return [
        module
        for name, module in layer.named_modules()
        if isinstance(module, torch.nn.Linear) and name.rpartition(".")[2] == "down"
    ]


def silence(layer: Layer, seed: int, *, heads: bool) -> None:
    """Takes away what a third of the neurons and half of the heads give."""
    chooser = torch.Generator().manual_seed(seed)
    for down in downs(layer):
        gone = torch.randperm(down.in_features, generator=chooser)[: down.in_features // 3]
        down.weight[:, gone] = 0
    if heads:
        attention = layer.spec.attention
        by_group = layer.get_submodule("o").weight.view(
            -1, attention.num_kv_heads, attention.query_size // attention.num_kv_heads
        )
        gone = torch.randperm(attention.num_kv_heads, generator=chooser)
        by_group[:, gone[: attention.num_kv_heads // 2]] = 0


def with_silent_units(source: Checkpoint, folder: Path, *, heads: bool) -> Checkpoint:
    decoder = Decoder.from_checkpoint(source)
    for seed, layer in enumerate(decoder.layers):
        silence(layer, seed, heads=heads)
    write_decoder(decoder, source, folder)
    return Checkpoint.open(folder)


def check_transformers(checkpoint: Checkpoint) -> None:
    """Transformers finds every tensor where it looks for it and computes the same."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint.path, output_loading_info=True, dtype=torch.float32
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        theirs = model.eval()(IDS).logits
    ours = Decoder.from_checkpoint(checkpoint)(IDS)
    torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", [*WIDE, *WIDE_WITHOUT_HEADS])
def test_what_gave_nothing_goes(name: str, tmp_path: Path) -> None:
    has_heads = name in WIDE
    source = with_silent_units(opened(name, tmp_path / "in"), tmp_path / "silent", heads=has_heads)
    steps = (NEURONS, HEADS) if has_heads else (NEURONS,)
    checkpoint, result = made(source, tmp_path / "out", steps)
    layer, before = checkpoint.spec.layers[-1], source.spec.layers[-1]
    assert layer.mlp.size == before.mlp.size * 2 // 3
    if has_heads:
        assert layer.attention.num_kv_heads == before.attention.num_kv_heads // 2
        assert layer.attention.head_dim == before.attention.head_dim
    assert result.share == 1 - checkpoint.spec.num_parameters() / source.spec.num_parameters() > 0
    check_same_logits(checkpoint, source)
    check_transformers(checkpoint)


def check_same_logits(checkpoint: Checkpoint, source: Checkpoint) -> None:
    ours, theirs = (Decoder.from_checkpoint(one)(IDS) for one in (checkpoint, source))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "llama-four-layers", "gpt2", "gpt-neox", "phi", "granite-hybrid-dense", "smollm3",
        "smollm3-listed", "gemma3-six-layers", "gemma2", "qwen2-mixed", "ministral", "olmo3",
        "mixed-experts", "qwen3-moe-dense-first",
    ],
)  # fmt: skip
def test_layers_that_gave_nothing_go(name: str, tmp_path: Path) -> None:
    source = opened(name, tmp_path / "in")
    decoder = Decoder.from_checkpoint(source)
    gone = range(0, source.spec.num_layers, 2)[-2:]
    for index in gone:
        layer = decoder.layers[index]
        for module in (layer.o, *downs(layer)):
            module.weight.zero_()
            if module.bias is not None:
                module.bias.zero_()
    write_decoder(decoder, source, tmp_path / "silent")
    source = Checkpoint.open(tmp_path / "silent")
    checkpoint, result = made(source, tmp_path / "out", (CutLayers(num=len(gone)),))
    kept = tuple(layer for layer in range(source.spec.num_layers) if layer not in gone)
    assert checkpoint.kept_layers == result.kept_layers == kept
    assert checkpoint.config["paredown"] == {"kept_layers": list(kept)}
    assert checkpoint.spec.layers == tuple(source.spec.layers[layer] for layer in kept)
    assert result.sizes == {"layers": (source.spec.num_layers, len(kept))}
    check_same_logits(checkpoint, source)
    check_transformers(checkpoint)


@pytest.mark.parametrize("name", ["mixtral", "mixed-experts", "qwen3-moe"])
def test_experts_that_nobody_asks_go(name: str, tmp_path: Path) -> None:
    source = opened(name, tmp_path / "in")
    decoder = Decoder.from_checkpoint(source)
    for layer in decoder.layers:
        if isinstance(layer.spec.mlp, Experts):
            # A constant input of the router, and rows that make two experts lose to all others.
            layer.mlp_norm.weight[0] = 0.0
            layer.router.weight[1] = layer.router.weight[3] = 0
            layer.router.weight *= 1e-3
            layer.router.weight[[1, 3]] = layer.router.weight[[0, 2]] * 0.999
    source_steps = (CutExperts(share=0.3, compensation=None),)
    write_decoder(decoder, source, tmp_path / "changed")
    source = Checkpoint.open(tmp_path / "changed")
    checkpoint, _ = made(source, tmp_path / "out", source_steps)
    (experts,), (before,) = checkpoint.spec.expert_kinds, source.spec.expert_kinds
    assert experts == replace(before, num=before.num - round(0.3 * before.num))
    check_transformers(checkpoint)
