"""The decoder gives Transformers' logits and greedy tokens on checkpoints it wrote itself."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, VOCAB_SIZE, make_model
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

TOLERANCE = 1e-4
ALL_VARIANTS = VARIANTS | DECODER_VARIANTS


def greedy(logits: Callable[[Tensor], Tensor], prompt: Tensor, num_tokens: int) -> list[int]:
    ids = prompt
    for _ in range(num_tokens):
        ids = torch.cat([ids, logits(ids)[:, -1:].argmax(-1)], dim=1)
    return ids[0, prompt.shape[1] :].tolist()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def check_parity(folder: Path) -> None:
    """Both compute in float32, whatever the weights are stored in."""
    theirs = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ours = Decoder.from_checkpoint(Checkpoint.open(folder))
    ids = torch.randint(0, VOCAB_SIZE, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        difference = (theirs(ids).logits - ours(ids)).abs().max().item()
        assert difference <= TOLERANCE
        prompt = ids[:1, :5]
        expected = greedy(lambda x: theirs(x).logits, prompt, 12)
        assert greedy(ours, prompt, 12) == expected


@pytest.mark.parametrize("name", ALL_VARIANTS)
def test_logits_and_greedy_tokens_equal_transformers(name: str, tmp_path: Path) -> None:
    ALL_VARIANTS[name](tmp_path, torch.float32, 0)
    check_parity(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["llama-gqa", "qwen3", "gpt2", "opt"])
def test_weights_stored_in_16_bits(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    VARIANTS[name](tmp_path, dtype, 1)
    check_parity(tmp_path)


@pytest.mark.parametrize("family", ["mistral", "gpt2"])
def test_sharded_weights(family: str, tmp_path: Path) -> None:
    make_model(family, torch.float32, 2).save_pretrained(tmp_path, max_shard_size="60KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    check_parity(tmp_path)
