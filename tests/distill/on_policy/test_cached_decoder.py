"""A text that grows token by token is predicted as a whole one, in each family."""

from pathlib import Path

import pytest
import torch

from fakes.tiny_models import VARIANTS, VOCAB_SIZE, variant
from paredown.distill.on_policy.cached_decoder import CachedDecoder
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder

FAMILIES = [
    "llama-gqa",
    "llama-rope-llama3",
    "mistral-window",
    "qwen3-mixed",
    "mixtral",
    "gpt2",
    "opt",
    "gpt-neox",
    "gemma2",
    "phi3-partial-window",
    "granite",
    "smollm3",
]
WRITERS = {name: VARIANTS[name] for name in FAMILIES} | {"ministral3": variant("ministral3")}


@pytest.mark.parametrize("family", WRITERS)
def test_a_growing_text_is_predicted_as_a_whole_one(family: str, tmp_path: Path) -> None:
    """Prompts of unlike length; after two tokens the second row is left out."""
    WRITERS[family](tmp_path, torch.float32, 4)
    decoder = Decoder.from_checkpoint(Checkpoint.open(tmp_path))
    random = torch.Generator().manual_seed(2)
    texts_BT = torch.randint(0, VOCAB_SIZE, (3, 24), generator=random)
    lengths = [11, 3, 17]
    with torch.no_grad():
        cached = CachedDecoder(decoder, 30)
        # Padding differs from the text that replaces it.
        padded_BT = torch.full((3, 17), 9)
        for row, length in enumerate(lengths):
            padded_BT[row, :length] = texts_BT[row, :length]
        found_BV = cached.read(padded_BT, torch.tensor(lengths))
        rows = [0, 1, 2]
        for step in range(5):
            for place, row in enumerate(rows):
                whole_1TV = decoder(texts_BT[row : row + 1, : lengths[row] + step])
                torch.testing.assert_close(found_BV[place], whole_1TV[0, -1], rtol=2e-4, atol=2e-4)
            if step == 2:
                cached.keep(torch.tensor([0, 2]))
                rows = [0, 2]
            found_BV = cached.add(torch.stack([texts_BT[row, lengths[row] + step] for row in rows]))
