"""The decoder gives Transformers' logits and greedy tokens on checkpoints it wrote itself."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder import Decoder
from tiny_models import VARIANTS, VOCAB_SIZE

TOLERANCE = 1e-4


def greedy(logits: Callable[[Tensor], Tensor], prompt: Tensor, num_tokens: int) -> list[int]:
    ids = prompt
    for _ in range(num_tokens):
        ids = torch.cat([ids, logits(ids)[:, -1:].argmax(-1)], dim=1)
    return ids[0, prompt.shape[1] :].tolist()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_and_greedy_tokens_equal_transformers(name: str, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path, torch.float32, 0)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    ours = Decoder.from_checkpoint(Checkpoint.open(tmp_path))
    ids = torch.randint(0, VOCAB_SIZE, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        difference = (theirs(ids).logits - ours(ids)).abs().max().item()
        assert difference <= TOLERANCE
        prompt = ids[:1, :5]
        expected = greedy(lambda x: theirs(x).logits, prompt, 12)
        assert greedy(ours, prompt, 12) == expected
