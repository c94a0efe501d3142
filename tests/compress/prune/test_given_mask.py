"""Masks that a user gives: followed to the bit, or refused by name, shape and dtype."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from paredown.compress.prune.given_mask import GivenMask
from paredown.compress.prune.method import Seen
from paredown.compress.prune.pattern import NOfM, Share
from paredown.errors import CheckpointError, ConfigError

HALF = Share(share=0.5)
SHAPES = {"layers.0.gate": (4, 8), "layers.0.height": (6, 4)}


def random_masks(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(shape, generator=generator) < 0.5 for name, shape in SHAPES.items()}


def write(folder: Path, masks: dict[str, Tensor]) -> GivenMask:
    path = folder / "masks.safetensors"
    save_file(masks, path)
    return GivenMask(path=str(path))


@pytest.mark.parametrize("suffix", ["", ".weight"])
def test_each_module_has_its_own_mask(tmp_path: Path, suffix: str) -> None:
    masks = random_masks()
    method = write(tmp_path, {f"{name}{suffix}": mask for name, mask in masks.items()})
    method.check_modules(SHAPES, Share(share=0.5))
    for name, mask_OI in masks.items():
        weight_OI = torch.randn(mask_OI.shape, generator=torch.Generator().manual_seed(1))
        weight_OI[0] = 0
        pruned = method.prune(weight_OI, HALF, Seen(module=name))
        assert torch.equal(pruned.values_OI, weight_OI * mask_OI)
        assert torch.equal(pruned.mask_OI, mask_OI & (weight_OI != 0))


def test_another_share_is_told(tmp_path: Path) -> None:
    mask_OI = torch.ones(4, 8, dtype=torch.bool)
    mask_OI[0] = False
    method = write(tmp_path, {"layers.0.gate": mask_OI})
    seen = Seen(module="layers.0.gate")
    assert method.prune(torch.ones(4, 8), Share(share=0.25), seen).notes == ()
    told = method.prune(torch.ones(4, 8), HALF, seen).notes
    assert told == ("the given mask removes 25.0 %, not 50 %",)


def test_a_broken_pattern_is_refused(tmp_path: Path) -> None:
    mask_OI = torch.tensor([[True, True, False, False, True, False, True, False]])
    method = write(tmp_path, {"one": mask_OI})
    seen = Seen(module="one")
    pruned = method.prune(torch.ones(1, 8), NOfM(n=2, m=4), seen)
    assert torch.equal(pruned.mask_OI, mask_OI)
    with pytest.raises(ConfigError, match=r"module one does not have the pattern 1of4 .*2 of 4"):
        method.prune(torch.ones(1, 8), NOfM(n=1, m=4), seen)


def test_what_does_not_fit_is_named_before_work(tmp_path: Path) -> None:
    masks = random_masks()
    transposed = write(tmp_path, masks | {"layers.0.gate": masks["layers.0.gate"].T.contiguous()})
    with pytest.raises(ConfigError, match=r"layers\.0\.gate .*BOOL \[8, 4\] for BOOL \[4, 8\]"):
        transposed.check_modules(SHAPES, Share(share=0.5))
    floats = write(tmp_path, masks | {"layers.0.gate": masks["layers.0.gate"].float()})
    with pytest.raises(ConfigError, match=r"F32 \[4, 8\] for BOOL \[4, 8\]"):
        floats.check_modules(SHAPES, Share(share=0.5))
    few = write(tmp_path, {"layers.0.gate": masks["layers.0.gate"]})
    with pytest.raises(ConfigError, match=r"no mask for the module layers\.0\.height"):
        few.check_modules(SHAPES, Share(share=0.5))
    many = write(tmp_path, masks | {"layers.9.gate": masks["layers.0.gate"].clone()})
    with pytest.raises(ConfigError, match=r"no module that is pruned .*layers\.9\.gate"):
        many.check_modules(SHAPES, Share(share=0.5))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="missing"):
        GivenMask(path=str(tmp_path / "missing.safetensors")).check_modules(
            SHAPES, Share(share=0.5)
        )
    (tmp_path / "masks.safetensors").write_bytes(b"no safetensors file")
    with pytest.raises(CheckpointError, match="header"):
        GivenMask(path=str(tmp_path / "masks.safetensors")).check_modules(SHAPES, Share(share=0.5))
