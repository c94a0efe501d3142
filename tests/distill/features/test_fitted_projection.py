"""The projection starts as the one that is best for the student as it is."""

from pathlib import Path

import numpy as np
import torch

from drivers.tiny_sampling import load_student, write_llama
from drivers.tiny_training import random_rows
from paredown.distill.features.fitted_projection import fitted_projection
from paredown.distill.features.hidden_states import hidden_losses
from paredown.distill.features.layer_map import LayerMap
from paredown.distill.rows import Rows
from paredown.models.decoder.decoder import Decoder

ROWS = random_rows(40, 16)


def test_no_small_change_makes_it_better(tmp_path: Path) -> None:
    teacher = load_student(write_llama(tmp_path / "teacher", 1, num_hidden_layers=3))
    narrow = {"hidden_size": 32, "head_dim": 8, "num_hidden_layers": 2}
    student = load_student(write_llama(tmp_path / "student", 2, **narrow))
    layer_map = LayerMap.of(student.spec, teacher.spec)
    found_ED = fitted_projection(student, teacher, layer_map, ROWS, "fp32")
    assert found_ED.shape == (64, 32)
    batch = ROWS.batch(np.arange(9))  # as many as are read: 4 * 32 tokens of 15 each
    seen = [
        [one.flatten(0, 1) for one in states(decoder, batch.inputs_BT)]
        for decoder in (student, teacher)
    ]

    def loss(projection_ED: torch.Tensor) -> float:
        return sum(
            hidden_losses(seen[0][own], seen[1][taught], projection_ED).sum().item()
            for own, taught in enumerate(layer_map.states)
        )

    best = loss(found_ED)
    for seed in range(5):
        random = torch.Generator().manual_seed(seed)
        change_ED = 0.1 * found_ED.std() * torch.randn(64, 32, generator=random)
        assert min(loss(found_ED + change_ED), loss(found_ED - change_ED)) > best
    assert best < 0.9 * loss(torch.zeros(64, 32))


def test_a_token_that_the_teacher_never_saw_has_no_say(tmp_path: Path) -> None:
    """The reference solves for the states that the teacher has, weighted as in the loss."""
    teacher = load_student(write_llama(tmp_path / "teacher", 1))
    narrow = {"hidden_size": 32, "head_dim": 8}
    student = load_student(write_llama(tmp_path / "student", 2, **narrow))
    tokens = np.arange(160).reshape(16, 10)  # each token once
    tokens[:, 1] = 7
    teacher.embedding.weight[7] = 0
    layer_map = LayerMap.of(student.spec, teacher.spec)
    rows = Rows.from_windows(tokens)
    found_ED = fitted_projection(student, teacher, layer_map, rows, "fp32")
    batch = rows.batch(np.arange(15))  # as many as are read: 4 * 32 tokens of 9 each
    own_ND, taught_NE = (
        torch.cat([one.flatten(0, 1) for one in states(decoder, batch.inputs_BT)]).double()
        for decoder in (student, teacher)
    )
    norms_N1 = taught_NE.norm(dim=-1, keepdim=True)
    is_state_N = norms_N1[:, 0] > 0
    assert int((~is_state_N).sum()) == 16
    own_ND, taught_NE = ((one / norms_N1)[is_state_N] for one in (own_ND, taught_NE))
    expected_ED = torch.linalg.lstsq(own_ND, taught_NE).solution.T
    distance = (found_ED - expected_ED).norm() / expected_ED.norm()
    assert distance < 0.01, distance


def states(decoder: Decoder, inputs_BT: torch.Tensor) -> list[torch.Tensor]:
    seen = [decoder.embed(inputs_BT)]
    positions = decoder.positions(inputs_BT.shape[1])
    for layer, there in zip(decoder.layers, positions, strict=True):
        seen.append(layer(seen[-1], *there))
    return seen


def test_as_many_columns_need_no_fit(tmp_path: Path) -> None:
    model = load_student(write_llama(tmp_path / "model", 1))
    layer_map = LayerMap.of(model.spec, model.spec)
    found_ED = fitted_projection(model, model, layer_map, ROWS, "fp32")
    assert found_ED.tolist() == torch.eye(64).tolist()
