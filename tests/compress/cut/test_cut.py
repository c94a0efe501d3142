"""Cut checkpoints of every family: what is left computes what it computed, and Transformers loads
it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from fakes.packed_folders import write_packed
from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, VOCAB_SIZE, variant
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.cut.cut import check_cuts, cut
from paredown.compress.cut.experts import CutExperts
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.compress.cut.layers import CutLayers
from paredown.compress.cut.method import Cut, CutResult
from paredown.errors import ConfigError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer
from paredown.models.decoder.write import write_decoder
from paredown.spec.experts import Experts
from paredown.spec.weight import WeightSpec

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
            # Rows near zero lose to the largest of the others.
            layer.router.weight[[1, 3]] *= 1e-3
    source_steps = (CutExperts(share=0.3, compensation=None),)
    write_decoder(decoder, source, tmp_path / "changed")
    source = Checkpoint.open(tmp_path / "changed")
    checkpoint, _ = made(source, tmp_path / "out", source_steps)
    (experts,), (before,) = checkpoint.spec.expert_kinds, source.spec.expert_kinds
    assert experts == replace(before, num=before.num - round(0.3 * before.num))
    check_transformers(checkpoint)


@pytest.mark.parametrize("name", ["llama-biases", "gpt2", "gpt-neox", "phi3", "mixed-experts"])
def test_a_share_of_nothing_changes_no_bit(name: str, tmp_path: Path) -> None:
    source = opened(name, tmp_path / "in")
    steps: list[Cut] = [CutNeurons(share=0), CutHeads(share=0)]
    if source.spec.has_experts:
        steps.append(CutExperts(share=0))
    checkpoint, result = made(source, tmp_path / "out", steps)
    assert checkpoint.config == source.config
    assert (result.share, result.sizes, result.kept_layers) == (0, {}, None)
    assert checkpoint.tensors.keys() == source.tensors.keys()
    for tensor in source.tensors:
        found, expected = checkpoint.tensors[tensor], source.tensors[tensor]
        assert found.array.tobytes() == expected.array.tobytes(), tensor


def test_two_cuts_of_layers_compose_their_numbers(tmp_path: Path) -> None:
    source = opened("llama-four-layers", tmp_path / "in")
    once, _ = made(source, tmp_path / "once", (CutLayers(num=1),))
    again, _ = made(once, tmp_path / "again", (CutLayers(num=1),))
    both, result = made(source, tmp_path / "both", (CutLayers(num=1), CutLayers(num=1)))
    assert once.kept_layers is not None
    assert again.kept_layers == both.kept_layers == result.kept_layers
    assert len(both.kept_layers or ()) == 2
    assert set(both.kept_layers or ()) < set(once.kept_layers)
    for name, tensor in again.tensors.items():
        assert tensor.array.tobytes() == both.tensors[name].array.tobytes(), name


def test_what_stays_keeps_its_bits(tmp_path: Path) -> None:
    """Without compensation, rows and columns of the source are all there is."""
    ALL_VARIANTS["phi3"](tmp_path / "in", torch.bfloat16, 3)
    source = Checkpoint.open(tmp_path / "in")
    steps = (replace(NEURONS, compensation=None), replace(HEADS, compensation=None))
    checkpoint, _ = made(source, tmp_path / "out", steps)
    for role, layer in (("q", 0), ("v", 1), ("gate", 0), ("up", 1)):
        rows = {row.tobytes() for row in source.linear(role, layer).dequantize()}
        assert all(row.tobytes() in rows for row in checkpoint.linear(role, layer).dequantize()), (
            role
        )
    for role in ("o", "down"):
        columns = {column.tobytes() for column in source.linear(role, 0).dequantize().T.copy()}
        found = checkpoint.linear(role, 0).dequantize().T.copy()
        assert all(column.tobytes() in columns for column in found), role


def test_dead_layers_are_told(tmp_path: Path) -> None:
    source = opened("llama-gqa", tmp_path / "in")
    decoder = Decoder.from_checkpoint(source)
    decoder.layers[1].up.weight.zero_()
    write_decoder(decoder, source, tmp_path / "dead")
    checkpoint, result = made(Checkpoint.open(tmp_path / "dead"), tmp_path / "out", (NEURONS,))
    assert any("layer 1: down: no neuron gives anything" in note for note in result.notes)
    assert checkpoint.spec.layers[1].mlp.size == 64


def refused(source: Checkpoint, steps: Sequence[Cut], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        check_cuts(source, steps)
    output = source.path.with_name("refused")
    with pytest.raises(error, match=match):
        cut(source, output, steps, CALIBRATION)
    assert [path for path in output.parent.iterdir() if "refused" in path.name] == []


def test_what_cannot_be_cut_is_refused_before_any_work(tmp_path: Path) -> None:
    llama = opened("llama-gqa", tmp_path / "llama")
    refused(llama, (), ConfigError, "nothing is to be cut")
    refused(llama, (CutLayers(num=2),), ConfigError, "last layer")
    refused(llama, (CutLayers(num=1), CutLayers(num=1)), ConfigError, "last layer")
    refused(llama, (CutExperts(share=0.25),), UnsupportedError, "no experts")
    refused(llama, (CutHeads(share=0.9),), ConfigError, "too few key-value heads")
    refused(llama, (CutHeads(share=0.1),), ConfigError, "removes none")
    refused(llama, (CutNeurons(share=0.9),), ConfigError, "no multiple of 32")
    refused(llama, (CutNeurons(share=0.3, multiple_of=256),), ConfigError, "no multiple of 256")
    for share in (-0.1, 1.0):
        for make in (CutNeurons, CutHeads, CutExperts):
            with pytest.raises(ConfigError, match="outside"):
                make(share=share)
    with pytest.raises(ConfigError, match="no layer"):
        CutLayers(num=0)
    with pytest.raises(ConfigError, match="calibration text"):
        cut(llama, tmp_path / "out", (NEURONS,), None)


@pytest.mark.parametrize("name", ["gpt2", "opt", "gpt-neox", "phi", "olmo2"])
def test_heads_of_other_sizes_are_refused(name: str, tmp_path: Path) -> None:
    """Their configs have no size of heads, or their norms cover all heads."""
    refused(opened(name, tmp_path / "in"), (HEADS,), UnsupportedError, "config.json|norms")


def test_a_quantized_source_is_refused(tmp_path: Path) -> None:
    write_packed(tmp_path / "in", "llama-gqa", WeightSpec(dtype="int4", group_size=32))
    refused(Checkpoint.open(tmp_path / "in"), (NEURONS,), UnsupportedError, "compressed already")


def test_experts_that_tokens_need_stay(tmp_path: Path) -> None:
    source = opened("mixtral", tmp_path / "in")
    refused(source, (CutExperts(share=0.7),), ConfigError, "too few experts")
