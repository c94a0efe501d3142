"""The cost of removing each layer, beside the definition in float64."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fakes.tiny_models import VARIANTS, VOCAB_SIZE, variant
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import open_workspace
from paredown.compress.cut.layer_costs import LayerCosts
from paredown.compress.cut.layers import CutLayers
from paredown.compress.cut.method import Compensation
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.layer import Layer

WINDOWS_NT = torch.randint(0, VOCAB_SIZE, (7, 40), generator=torch.Generator().manual_seed(5))
CALIBRATION = Calibration(windows_NT=WINDOWS_NT.numpy(), source="random tokens")
DAMP = 0.02
MODELS = {
    "llama": variant("llama", num_hidden_layers=4),
    "gpt2": VARIANTS["gpt2"],
    "granite": VARIANTS["granite"],
}


class Seen:
    """Keeps the inputs, inner values and outputs of a layer in float64; tokens are rows."""

    def __init__(self, layer: Layer, x_BTD: Tensor) -> None:
        points: dict[str, Tensor] = {}

        def tap(point: str, x: Tensor) -> Tensor:
            points[point] = x.flatten(0, 1)
            return x

        layer.tap = tap
        outputs_BTD = layer(x_BTD, *layer.positions(x_BTD.shape[1]))
        self.layer = layer
        self.inputs = x_BTD.flatten(0, 1)
        self.sums, self.neurons = points["attention_sum"], points["down_input"]
        self.outputs_BTD, self.outputs = outputs_BTD, outputs_BTD.flatten(0, 1)


def seen_layers(source: Checkpoint) -> list[Seen]:
    decoder = Decoder.from_checkpoint(source).double()
    with torch.no_grad():
        x_BTD, found = decoder.embed(WINDOWS_NT), []
        for layer in decoder.layers:
            assert isinstance(layer, Layer)
            found.append(Seen(layer, x_BTD))
            x_BTD = found[-1].outputs_BTD
    return found


def unexplained(before: Seen | None, removed: Seen) -> float:
    """The mean of |y - y'|^2 / |y|^2, for the best y' that the layer before can give."""
    sizes = removed.outputs.norm(dim=-1, keepdim=True)
    if before is None:
        return float(((removed.outputs - removed.inputs) / sizes).square().sum(-1).mean())
    down, multiplier = before.layer.get_submodule("down"), before.layer.spec.residual_multiplier
    weight, bias = down.weight.data, down.bias
    x = multiplier * before.neurons / sizes
    target = removed.outputs - before.sums
    target = (target if bias is None else target - multiplier * bias.data) / sizes
    # The damping is a mean of the diagonal of 2/N sum x x^T, as more rows of the least squares.
    added = DAMP * float(2 / len(x) * x.square().sum(0).mean())
    root = (added * len(x) / 2) ** 0.5 * torch.eye(x.shape[1], dtype=x.dtype)
    best = torch.linalg.lstsq(torch.cat([x, root]), torch.cat([target, root @ weight.T])).solution
    return float((target - x @ best).square().sum(-1).mean())


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def source(request, tmp_path) -> Checkpoint:
    request.param(tmp_path / "model", torch.float32, 3)
    return Checkpoint.open(tmp_path / "model")


def costs(source: Checkpoint, cut: CutLayers, tmp_path) -> list[float]:
    with open_workspace(tmp_path / "work", "x") as workspace, torch.inference_mode():
        return LayerCosts(source, cut, CALIBRATION, workspace).run(lambda what, share: None)


def test_a_removal_costs_what_the_layer_before_cannot_give(source, tmp_path):
    cut = CutLayers(num=1, compensation=Compensation(damp=DAMP))
    layers = seen_layers(source)
    wanted = [
        unexplained(before, removed)
        for before, removed in zip([None, *layers], layers, strict=False)
    ]
    assert costs(source, cut, tmp_path) == pytest.approx(wanted, rel=1e-3)


def test_without_compensation_it_costs_its_block_influence(source, tmp_path):
    wanted = [
        float(1 - functional.cosine_similarity(one.inputs, one.outputs, dim=-1).mean())
        for one in seen_layers(source)
    ]
    found = costs(source, CutLayers(num=1, compensation=None), tmp_path)
    assert found == pytest.approx(wanted, abs=1e-5)
