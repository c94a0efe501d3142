"""Passes that begin after what is finished: the same bits as from the beginning."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fakes.tiny_models import VARIANTS
from fakes.tiny_t5 import make_t5, write_t5
from paredown.compress.calibrate.block import LayerBlock, load_block
from paredown.compress.calibrate.passes import Passes
from paredown.compress.calibrate.workspace import Workspace, open_workspace
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.points import INPUT_POINTS, Tap, last_point

Groups = Mapping[tuple[str, ...], tuple[str, ...]]

GROUPS: Groups = {
    ("attention_input",): ("q", "k", "v"),
    ("o_input",): ("o",),
    ("mlp_input",): ("gate", "up"),
    ("down_input",): ("down",),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "work", "") as found:
        yield found


def make_block(variant: str, folder: Path, workspace: Workspace) -> LayerBlock:
    VARIANTS[variant](folder, torch.float32, 0)
    source = Checkpoint.open(folder)
    inputs = workspace.inputs(0, (5, 24, source.spec.hidden_size))
    x_NTD = torch.randn(5, 24, source.spec.hidden_size, generator=torch.Generator().manual_seed(1))
    inputs.write([x_NTD])
    return load_block(source, 0, inputs)


def recorder(seen: dict[str, list[Tensor]]) -> Tap:
    def tap(point: str, x: Tensor) -> Tensor:
        seen.setdefault(point, []).append(x.clone())
        return x

    return tap


def halve(block: LayerBlock, roles: tuple[str, ...]) -> None:
    for role in roles:
        if role in block.spec.linear_shapes(0):
            block.layer.get_submodule(role).weight.data *= 0.5


def check_groups(
    passes: Passes, block: LayerBlock, groups: Groups, left_out: tuple[str, ...] | None
) -> None:
    """Compares what passes see with a run of the whole block, whose weights change in between."""
    for points, roles in groups.items():
        if points != left_out:
            seen, expected = {}, {}
            passes.observe(recorder(seen), points)
            block.run(recorder(expected), stop_after=last_point(points))
            for x, whole in zip(seen[points[0]], expected[points[0]], strict=True):
                assert torch.equal(x, whole)
        halve(block, roles)


@torch.inference_mode()
@pytest.mark.parametrize("variant", ["llama-gqa", "llama-head-dim", "qwen3", "opt"])
@pytest.mark.parametrize("left_out", [None, *GROUPS])
def test_every_pass_sees_what_a_whole_one_would(
    variant: str, left_out: tuple[str, ...] | None, tmp_path: Path, workspace: Workspace
) -> None:
    block = make_block(variant, tmp_path / "in", workspace)
    passes = Passes(block, workspace)
    check_groups(passes, block, GROUPS, left_out)
    whole_NTD = torch.cat([block.layer(x, block.table, block.mask) for x in block.inputs()])
    assert torch.equal(torch.cat(list(passes.outputs())), whole_NTD)
    passes.close()
    assert [file.name for file in workspace.path.glob("*.f32")] == ["inputs-00000.f32"]


CROSS_GROUPS: Groups = {
    ("attention_input",): ("q", "k", "v"),
    ("o_input",): ("o",),
    ("cross_input",): ("cross_q",),
    ("cross_encoded",): ("cross_k", "cross_v"),
    ("cross_o_input",): ("cross_o",),
    ("mlp_input",): ("gate", "up"),
    ("down_input",): ("down",),
}


@torch.inference_mode()
@pytest.mark.parametrize("left_out", [None, *CROSS_GROUPS])
def test_every_pass_over_a_layer_with_cross_attention_sees_what_a_whole_one_would(
    left_out: tuple[str, ...] | None, tmp_path: Path, workspace: Workspace
) -> None:
    write_t5(make_t5("gated-tied"), tmp_path / "in")
    source = Checkpoint.open(tmp_path / "in")
    draw = torch.Generator().manual_seed(1)
    inputs, read = workspace.inputs(0, (5, 24, 64)), workspace.inside(0, "encoded", (5, 31, 64))
    inputs.write([torch.randn(5, 24, 64, generator=draw)])
    read.write([torch.randn(5, 31, 64, generator=draw)])
    block = load_block(source, 0, inputs, read)
    passes = Passes(block, workspace)
    check_groups(passes, block, CROSS_GROUPS, left_out)
    both = zip(block.inputs(), block.encoded(), strict=True)
    whole_NTD = torch.cat([block.layer(x, block.table, block.mask, one) for x, one in both])
    assert torch.equal(torch.cat(list(passes.outputs())), whole_NTD)
    passes.close()
    assert sorted(file.name for file in workspace.path.glob("*.f32")) == [
        "inputs-00000-encoded.f32",
        "inputs-00000.f32",
    ]


@torch.inference_mode()
def test_points_that_are_seen_together_keep_nothing(tmp_path: Path, workspace: Workspace) -> None:
    block = make_block("llama-gqa", tmp_path / "in", workspace)
    passes = Passes(block, workspace)
    passes.observe(recorder({}), tuple(dict.fromkeys(INPUT_POINTS.values())))
    halve(block, ("q", "k", "v", "o", "gate", "up", "down"))
    whole_NTD = torch.cat([block.layer(x, block.table, block.mask) for x in block.inputs()])
    assert torch.equal(torch.cat(list(passes.outputs())), whole_NTD)
