"""Whatever the loss, positions that are no targets cannot be seen, and a batch without targets has
nothing to learn (D03, D05)."""

import numpy as np
import pytest
import torch
from torch import Tensor

from drivers.tiny_sampling import load_student, load_teacher, write_llama
from drivers.tiny_training import random_rows, uneven_rows
from paredown.distill import chunked_logits
from paredown.distill.batch import Batch
from paredown.distill.losses.cross_entropy import CrossEntropy
from paredown.distill.losses.jsd import JSD
from paredown.distill.losses.kl import KL
from paredown.distill.losses.reverse_kl import ReverseKL
from paredown.distill.losses.slim import SLIM
from paredown.distill.losses.soft_label import SoftLabel
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.losses.top_share_kl import TopShareKL
from paredown.distill.objective import LogitObjective
from paredown.distill.rows import Rows
from paredown.distill.teacher import DecoderTeacher, Teacher
from paredown.models.decoder.decoder import Decoder

LOSSES = [
    CrossEntropy(),
    KL(temperature=2.0),
    SoftLabel(),
    ReverseKL(),
    JSD(),
    TopShareKL(missing_mass="uniform"),
    SLIM(),
]


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_student(write_llama(tmp_path_factory.mktemp("student"), 4)).requires_grad_(True)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> DecoderTeacher:
    return load_teacher(write_llama(tmp_path_factory.mktemp("teacher"), 9))


def found(loss: TokenLoss, student: Decoder, teacher: Teacher, batch: Batch) -> list[Tensor]:
    total = LogitObjective(loss=loss, teacher=teacher).total(
        student, batch, "fp32", recomputes=False
    )
    return [total.detach(), *torch.autograd.grad(total, list(student.parameters()))]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_places_that_are_no_targets_cannot_be_seen(
    loss: TokenLoss, student: Decoder, teacher: DecoderTeacher
) -> None:
    """[3 of a prompt][2 of an answer][3 of padding], with other tokens in the padding."""
    rows = random_rows(1, 8)
    is_target_NT = np.array([[False, False, False, True, True, False, False, False]])

    def of_padding(padding: list[int]) -> list[Tensor]:
        tokens_NT = np.concatenate([rows.tokens_NT[:, :5], [padding]], axis=1)
        batch = Rows(tokens_NT=tokens_NT, is_target_NT=is_target_NT).batch(np.array([0]))
        return found(loss, student, teacher, batch)

    for one, other in zip(of_padding([1, 2, 3]), of_padding([7, 8, 9]), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_without_targets_there_is_nothing_to_learn(
    loss: TokenLoss, student: Decoder, teacher: DecoderTeacher
) -> None:
    batch = uneven_rows([0, 0], 8).batch(np.arange(2))
    assert all((one == 0).all() for one in found(loss, student, teacher, batch))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_parts_and_chunks_add_up_to_the_whole(
    loss: TokenLoss, student: Decoder, teacher: DecoderTeacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = uneven_rows([5, 30, 17], 40).batch(np.arange(3))
    whole = found(loss, student, teacher, batch)
    monkeypatch.setattr(chunked_logits, "chunk_rows", lambda vocab_size, device: 7)
    parts = [found(loss, student, teacher, part) for part in batch.split(1)]
    for one, *others in zip(whole, *parts, strict=True):
        torch.testing.assert_close(torch.stack(others).sum(0), one, rtol=5e-5, atol=5e-5)
