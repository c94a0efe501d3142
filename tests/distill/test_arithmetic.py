"""Products in bf16 leave masters in float32 and a loss near the exact one, for all families."""

from pathlib import Path

import numpy as np
import pytest
import torch

from drivers.tiny_training import random_rows
from fakes.tiny_models import make_model
from paredown.distill.arithmetic import Arithmetic, choose_arithmetic
from paredown.distill.forward import fuse_attention
from paredown.distill.losses.kl import KL
from paredown.distill.objective import LogitObjective
from paredown.distill.teacher import DecoderTeacher
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "qwen3_moe"])
def test_bf16_is_near_float32(family: str, tmp_path: Path) -> None:
    for name, seed in (("student", 4), ("teacher", 5)):
        make_model(family, torch.bfloat16, seed).save_pretrained(tmp_path / name)
    student = Decoder.from_checkpoint(Checkpoint.open(tmp_path / "student"))
    fuse_attention(student)
    student.requires_grad_(True)
    parameters = list(student.parameters())
    batch = random_rows(4, 32).batch(np.arange(4))

    def found(arithmetic: Arithmetic) -> tuple[float, torch.Tensor]:
        teacher = DecoderTeacher.load(Checkpoint.open(tmp_path / "teacher"), arithmetic)
        objective = LogitObjective(loss=KL(), teacher=teacher)
        loss = objective.total(student, batch, arithmetic, recomputes=False)
        gradients = torch.autograd.grad(loss, parameters)
        assert all(gradient.dtype == torch.float32 for gradient in gradients)
        return loss.item(), torch.cat([gradient.flatten() for gradient in gradients])

    exact, near = found("fp32"), found("bf16")
    assert near[0] == pytest.approx(exact[0], rel=0.05)
    assert torch.cosine_similarity(exact[1], near[1], dim=0) > 0.95
    assert near[0] != exact[0]


def test_an_arithmetic_is_chosen() -> None:
    assert choose_arithmetic("cpu") in ("bf16", "fp32")
