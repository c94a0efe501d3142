"""Bits per byte of an exported folder on held-out text, through Transformers in float32.

Protocol: the books of a split are joined as the file holds them and tokenized as one text. It is
cut into consecutive windows of 2,048 tokens that do not overlap. Each window is predicted from the
end-of-text token and the window's own tokens before, so every token of the text is predicted once.
Bits per byte is the sum of the negative log2 likelihoods over the bytes of the text.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import LlamaForCausalLM

from tools.train.books import read_split
from tools.train.places import add_data_argument
from tools.train.tokenizer import END_OF_TEXT_ID

WINDOW = 2048


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Result on one text: nats in all, tokens and bytes predicted."""

    nats: float
    tokens: int
    size: int

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.size

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens


@torch.inference_mode()
def window_nats(model: Any, ids: list[int]) -> float:
    """Sum of the negative log likelihoods of `ids`, at most 2,048, after the end-of-text token."""
    inputs = torch.tensor([[END_OF_TEXT_ID, *ids[:-1]]])
    logits = model(inputs, use_cache=False).logits[0]
    return float(functional.cross_entropy(logits.float(), torch.tensor(ids), reduction="sum"))


def evaluate(folder: Path, text: str, stride: int = 1) -> HeldOut:
    """Evaluate the checkpoint in `folder` on every `stride`-th window of `text`."""
    model: Any = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoding = tokenizer.encode(text, add_special_tokens=False)
    # Every use of these properties copies the whole list.
    all_ids, all_tokens = encoding.ids, encoding.tokens
    nats, tokens, size = 0.0, 0, 0
    for start in range(0, len(all_ids), WINDOW * stride):
        ids = all_ids[start : start + WINDOW]
        nats += window_nats(model, ids)
        tokens += len(ids)
        # The byte-level alphabet writes a token with one symbol per byte.
        size += sum(map(len, all_tokens[start : start + WINDOW]))
    return HeldOut(nats=nats, tokens=tokens, size=size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    add_data_argument(parser)
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--stride", type=int, default=1, help="take every n-th window only")
    args = parser.parse_args()
    result = evaluate(args.folder, read_split(args.data, args.split), args.stride)
    print(
        f"{args.split}: {result.bits_per_byte:.4f} bits per byte, "
        f"{result.nats_per_token:.4f} nats per token, {result.tokens} tokens, {result.size} bytes"
    )


if __name__ == "__main__":
    main()
