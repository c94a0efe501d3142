"""One threshold for all matrices removes the smallest weights of the whole model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import make_model
from paredown.compress.prune.global_threshold import global_shares
from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import linear_places


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("models") / "llama"
    make_model("llama", request.param, 0).save_pretrained(folder)
    return Checkpoint.open(Path(folder))


def magnitudes(source: Checkpoint) -> dict[str, np.ndarray]:
    return {
        source.linear_name(role, layer): np.abs(source.linear(role, layer).dequantize()).ravel()
        for role, layer in linear_places(source.spec)
    }


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.5, 0.99])
def test_the_smallest_weights_of_all_go(source: Checkpoint, share: float) -> None:
    own = magnitudes(source)
    found = global_shares(source, own, share)
    every = np.sort(np.concatenate(list(own.values())))
    wanted = round(share * every.size)
    counts = {name: one.num_removed(own[name].size) for name, one in found.items()}
    assert sum(counts.values()) == wanted
    if wanted:
        threshold = every[wanted - 1]
        for name, count in counts.items():
            below = np.count_nonzero(own[name] < threshold)
            assert below <= count <= np.count_nonzero(own[name] <= threshold)


def test_some_modules_alone(source: Checkpoint) -> None:
    names = list(magnitudes(source))[:3]
    assert set(global_shares(source, names, 0.5)) == set(names)
