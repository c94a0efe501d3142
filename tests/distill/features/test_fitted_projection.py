"""The projection starts as the one that is best for the student as it is."""

from pathlib import Path

import numpy as np
import torch

from drivers.tiny_sampling import load_student, write_llama
from drivers.tiny_training import random_rows
from paredown.distill.features.fitted_projection import fitted_projection
from paredown.distill.features.hidden_states import hidden_losses
from paredown.distill.features.layer_map import LayerMap

ROWS = random_rows(40, 16)


def test_no_small_change_makes_it_better(tmp_path: Path) -> None:
    teacher = load_student(write_llama(tmp_path / "teacher", 1, num_hidden_layers=3))
    narrow = {"hidden_size": 32, "head_dim": 8, "num_hidden_layers": 2}
    student = load_student(write_llama(tmp_path / "student", 2, **narrow))
    layer_map = LayerMap.of(student.spec, teacher.spec)
    found_ED = fitted_projection(student, teacher, layer_map, ROWS, "fp32")
    assert found_ED.shape == (64, 32)
    batch = ROWS.batch(np.arange(9))  # as many as are read: 4 * 32 tokens of 15 each
    states = []
    for decoder in (student, teacher):
        seen = [decoder.embed(batch.inputs_BT)]
        for layer, positions in zip(decoder.layers, decoder.positions(15), strict=True):
            seen.append(layer(seen[-1], *positions))
        states.append([one.flatten(0, 1) for one in seen])

    def loss(projection_ED: torch.Tensor) -> float:
        return sum(
            hidden_losses(states[0][own], states[1][taught], projection_ED).sum().item()
            for own, taught in enumerate(layer_map.states)
        )

    best = loss(found_ED)
    for seed in range(5):
        random = torch.Generator().manual_seed(seed)
        change_ED = 0.1 * found_ED.std() * torch.randn(64, 32, generator=random)
        assert min(loss(found_ED + change_ED), loss(found_ED - change_ED)) > best
    assert best < 0.9 * loss(torch.zeros(64, 32))


def test_as_many_columns_need_no_fit(tmp_path: Path) -> None:
    model = load_student(write_llama(tmp_path / "model", 1))
    layer_map = LayerMap.of(model.spec, model.spec)
    found_ED = fitted_projection(model, model, layer_map, ROWS, "fp32")
    assert found_ED.tolist() == torch.eye(64).tolist()
