"""CUDA graphs of tiles give what is computed plainly, in tensors of their own."""

import threading

import pytest
import torch
from torch import Tensor

from drivers.devices import CUDA
from paredown.executors.torch.tile_graphs import TileGraphs, run_plainly
from paredown.spec.device import Device


def compute(x_SD: Tensor, shift: Tensor | None, weight_DD: Tensor) -> tuple[Tensor, ...]:
    y_SD = (x_SD @ weight_DD).softmax(-1)
    return y_SD if shift is None else y_SD + shift, x_SD * 2


@pytest.mark.parametrize("device", [CUDA])
def test_a_graph_gives_the_same_bits_again_and_again(device: Device) -> None:
    graphs, weight_DD = TileGraphs(), torch.randn(48, 48, device=device)
    kept = list[tuple[Tensor, ...]]()
    inputs = [torch.randn(64, 48, device=device) for _ in range(3)]
    for x_SD in [*inputs, *inputs]:
        kept.append(graphs.run("key", compute, (x_SD, None, weight_DD)))
    for first, again, x_SD in zip(kept[:3], kept[3:], inputs, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
        expected = run_plainly("key", compute, (x_SD, None, weight_DD))
        assert all(torch.allclose(one, other) for one, other in zip(first, expected, strict=True))


@pytest.mark.parametrize("device", [CUDA])
def test_keys_and_threads_do_not_meet(device: Device) -> None:
    weight_DD = torch.randn(48, 48, device=device)
    shift, x_SD = torch.ones(48, device=device), torch.randn(64, 48, device=device)
    wrong = list[str]()

    def record() -> None:
        graphs = TileGraphs()
        for _ in range(20):
            (plain, _), (shifted, _) = (
                graphs.run(str(one is None), compute, (x_SD, one, weight_DD))
                for one in (None, shift)
            )
            if not torch.equal(plain + shift, shifted):
                wrong.append("a graph took another's inputs")

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
