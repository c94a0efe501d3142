"""One threshold for a whole model, against a ranking of all its weights."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import VARIANTS
from paredown.compress.prune import global_threshold as room
from paredown.compress.prune.global_threshold import global_shares
from paredown.compress.prune.magnitude import Magnitude
from paredown.compress.prune.method import Seen
from paredown.errors import ConfigError
from paredown.models.check_tensors import linear_modules
from paredown.models.checkpoint import Checkpoint


def open_model(name: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Checkpoint:
    VARIANTS[name](folder, dtype, 0)
    return Checkpoint.open(folder)


def magnitudes_of(source: Checkpoint) -> dict[str, np.ndarray]:
    return {
        module.name: np.abs(source.tensors[f"{module.name}.weight"].to_float32()).ravel()
        for module in linear_modules(source.spec, source.names)
    }


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("llama-gqa", torch.bfloat16), ("gpt2", torch.float32), ("qwen2-moe", torch.bfloat16)],
)
def test_it_is_the_ranking_of_all_weights(
    name: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_VALUES", 1000)
    source = open_model(name, tmp_path / "in", dtype)
    for share in (0.0, 0.1, 0.5, 0.93):
        assert_ranked(source, share)


def assert_ranked(source: Checkpoint, share: float) -> None:
    magnitudes = magnitudes_of(source)
    shares = global_shares(source, magnitudes, share)
    assert list(shares) == list(magnitudes)
    together = np.concatenate(list(magnitudes.values()))
    goes = np.zeros(together.size, bool)
    goes[np.argsort(together, kind="stable")[: round(share * together.size)]] = True
    parts = np.split(goes, np.cumsum([one.size for one in magnitudes.values()])[:-1])
    for module, part in zip(magnitudes, parts, strict=True):
        assert shares[module].num_removed(part.size) == int(part.sum())


def test_pruning_by_its_shares_is_pruning_by_the_threshold(tmp_path: Path) -> None:
    source = open_model("llama-gqa", tmp_path / "in")
    magnitudes = magnitudes_of(source)
    shares = global_shares(source, magnitudes, 0.6)
    kept, gone = [], []
    for module, sizes in magnitudes.items():
        weight_OI = torch.from_numpy(sizes.reshape(1, -1))
        mask_OI = Magnitude().prune(weight_OI, shares[module], Seen()).mask_OI
        kept.append(float(weight_OI[mask_OI].min()))
        gone.append(float(weight_OI[~mask_OI].max()))
    assert max(gone) <= min(kept)


def test_only_named_modules_count(tmp_path: Path) -> None:
    source = open_model("llama-gqa", tmp_path / "in")
    magnitudes = magnitudes_of(source)
    few = list(magnitudes)[2:4]
    shares = global_shares(source, few, 0.5)
    assert list(shares) == few
    removed = sum(shares[one].num_removed(magnitudes[one].size) for one in few)
    assert removed == round(0.5 * sum(magnitudes[one].size for one in few))
    with pytest.raises(ConfigError, match="no module to look at"):
        global_shares(source, ["layers.77.gate"], 0.5)


def test_a_module_keeps_a_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All weights of one module lie below the threshold."""
    source = open_model("llama-gqa", tmp_path / "in")
    small = next(iter(magnitudes_of(source)))
    real = room._Module.bits

    def shrunk(module: room._Module) -> object:
        for bits in real(module):
            yield bits // 2 if module.name == small else bits

    monkeypatch.setattr(room._Module, "bits", shrunk)
    shares = global_shares(source, magnitudes_of(source), 0.5)
    num_weights = magnitudes_of(source)[small].size
    assert shares[small].num_removed(num_weights) == num_weights - 1
