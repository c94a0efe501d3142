"""Which neurons stay, by each score, against its definition."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from fakes.tiny_models import VOCAB_SIZE, make_model
from paredown.compress.calibrate.calibration import Calibration
from paredown.compress.calibrate.workspace import open_workspace
from paredown.compress.cut.embedded import embedded
from paredown.compress.cut.ffn import CutNeurons, choose_neurons, merged
from paredown.compress.cut.method import Fit
from paredown.compress.cut.taylor import neuron_scores
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder


def fit(x: torch.Tensor, weight: torch.Tensor, **scores: torch.Tensor) -> Fit:
    hessian = 2 * x.T @ x / len(x)
    return Fit(
        weight_OI=weight,
        hessian_II=hessian,
        cross_OI=weight @ hessian,
        has_targets=False,
        **scores,
    )


def test_copies_are_merged_into_their_partners() -> None:
    torch.manual_seed(1)
    x = torch.randn(200, 64, dtype=torch.float64)
    # The last half repeats the first, each with its own size and sign.
    sizes = torch.linspace(-2, 2, 32, dtype=torch.float64) + 0.01
    x[:, 32:] = sizes * x[:, :32]
    weight = torch.randn(5, 64, dtype=torch.float64)
    kept, weight_OK = merged(fit(x, weight), 32)
    # One of each pair stays, and does what both did.
    assert sorted(one % 32 for one in kept) == list(range(32))
    torch.testing.assert_close(x[:, kept] @ weight_OK.T, x @ weight.T)


def test_the_largest_scores_stay() -> None:
    torch.manual_seed(2)
    x, weight = torch.randn(100, 64), torch.randn(3, 64)
    scores = torch.randperm(64).float()
    for score, name in (("taylor", "scores_I"), ("activation", "near_zero_I")):
        kept, _ = choose_neurons(
            CutNeurons(share=0.5, score=score), fit(x, weight, **{name: scores})
        )
        assert kept.tolist() == (scores >= 32).nonzero()[:, 0].tolist()


def test_silent_neurons_go_first() -> None:
    torch.manual_seed(3)
    x, weight = torch.randn(100, 64), torch.randn(3, 64)
    x[:, 1::2] *= 1e-3
    kept, _ = choose_neurons(CutNeurons(share=0.5), fit(x, weight))
    assert kept.tolist() == list(range(0, 64, 2))


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral"])
def test_taylor_scores_are_those_of_the_whole_model(family: str, tmp_path: Path) -> None:
    make_model(family, torch.float32, 4).save_pretrained(tmp_path / "in")
    source = Checkpoint.open(tmp_path / "in")
    windows = np.random.default_rng(6).integers(0, VOCAB_SIZE, (3, 12))
    calibration = Calibration(windows_NT=windows, source="random tokens")
    with open_workspace(tmp_path / "work", "x") as workspace, torch.inference_mode():
        scores = neuron_scores(
            source,
            torch.from_numpy(windows),
            embedded(source, calibration),
            workspace,
            lambda done: None,
        )
        assert not list((tmp_path / "work").glob("*.f32"))
    decoder = Decoder.from_checkpoint(source)
    expected = {key: torch.zeros_like(value) for key, value in scores.items()}
    seen: dict[tuple[int, str], torch.Tensor] = {}
    for layer in decoder.layers:

        def tap(point: str, x: torch.Tensor, index: int = layer.index) -> torch.Tensor:
            if point.endswith("down_input"):
                x.retain_grad()
                seen[index, point.removesuffix("_input")] = x
            return x

        layer.tap = tap
    for window in torch.from_numpy(windows):
        seen.clear()
        x_BTD = decoder.embed(window[None]).requires_grad_()
        for layer in decoder.layers:
            x_BTD = layer(x_BTD, *layer.positions(len(window)))
        logits = decoder.predict(x_BTD)[0, :-1]
        functional.cross_entropy(logits, window[1:]).backward()
        for key, a in seen.items():
            expected[key] += (a * a.grad).flatten(0, -2).sum(0).abs().detach() / len(windows)
    for key, value in expected.items():
        torch.testing.assert_close(scores[key], value, rtol=1e-3, atol=1e-6)
