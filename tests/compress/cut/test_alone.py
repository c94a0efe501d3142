"""A layer cut alone."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import open_workspace
from paredown.compress.cut.alone import cut_alone
from paredown.compress.cut.cut import cut
from paredown.compress.cut.ffn import CutNeurons
from paredown.compress.cut.heads import CutHeads
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.read import read_layer

WINDOWS = np.random.default_rng(3).integers(0, VOCAB_SIZE, (4, 48))
CALIBRATION = Calibration(windows_NT=WINDOWS, source="random tokens")
SIZES = {"hidden_size": 64, "intermediate_size": 128, "initializer_range": 0.15}


@pytest.mark.parametrize(
    ("step", "role"), [(CutNeurons(share=0.5), "down"), (CutHeads(share=0.5), "o")]
)
def test_it_is_the_cut_of_a_model_with_that_layer_first(
    step: CutNeurons | CutHeads, role: str, tmp_path: Path
) -> None:
    """The first layer of a cut model sees the original's inputs too; the second one does not."""
    make_model("llama", torch.float32, 0, **SIZES, num_hidden_layers=2).save_pretrained(
        tmp_path / "model"
    )
    source = Checkpoint.open(tmp_path / "model")
    with open_workspace(tmp_path / "work", "x") as workspace:
        alone = cut_alone(source, step, CALIBRATION, workspace, lambda what, share: None)
    assert not (tmp_path / "work").exists()
    assert [list(weights) for weights in alone] == [[role], [role]]
    cut(source, tmp_path / "cut", (step,), CALIBRATION)
    whole = Checkpoint.open(tmp_path / "cut")
    is_equal = []
    for layer, weights in enumerate(alone):
        weight_OI = weights[role]
        left_OK = weight_OI[:, weight_OI.any(0)]
        expected_OK = read_layer(whole, layer)[f"{role}.weight"]
        assert left_OK.shape == expected_OK.shape
        is_equal.append(torch.equal(left_OK, expected_OK))
    assert is_equal == [True, False]
