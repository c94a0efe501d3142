"""The model card of a shipped model."""

from __future__ import annotations

from dataclasses import dataclass

from tools.train.evaluate import HeldOut
from tools.train.shapes import Shape

ROLES = {
    "default": "the model that every command uses when none is named",
    "draft": "a draft model for speculative decoding, with the tokenizer of the default model",
}

WHOLE = "All windows count."
SAMPLED = "Only every window whose number is a multiple of {stride} counts."

CARD = """---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---
# Paredown {name} model

A Llama-architecture language model of {millions:.1f} million parameters: {role}.
It continues English prose in the manner of nineteenth- and early twentieth-century books.

## Held-out quality
| text | bits per byte | nats per token | tokens | bytes |
| --- | --- | --- | --- | --- |
{rows}

Protocol: the text is tokenized as a whole and cut into consecutive windows of 2,048 tokens that do
not overlap. Each window is predicted from the end-of-text token and the window's own tokens before,
so every token is predicted exactly once. Bits per byte is the sum of the negative log2 likelihoods
over the bytes of the predicted tokens. The figures are those of the bfloat16 weights in this
folder, computed in float32. {sampling}
No author of the valid or test books occurs in the training books.

## Architecture
Hidden size {hidden}, {layers} layers, gated MLP of {intermediate}, {heads} query heads and
{kv_heads} key/value heads of {head_dim}, tied embeddings, rotary positions (theta {theta:.0f}),
context {context} tokens. Byte-level BPE tokenizer of {vocab} entries; `<|endoftext|>` opens a text
and ends a book.

## Training
358 public-domain English books (150 MB, 37.8 million tokens with this tokenizer).
{steps} steps, {tokens:.1f} million tokens, {hours:.2f} hours on two shared CPU cores, in bfloat16
arithmetic with float32 master weights. Muon for the hidden matrices, AdamW for embedding and norms;
linear warm-up, constant rate, linear decay to zero; windows of 512 tokens, at the end 2,048.
The scripts are in `tools/train` of the Paredown repository.

## Limits
It is a small model of a small corpus: it writes sentences, not facts, and loses the thread within a
paragraph or two. It was not trained on conversations, instructions, code or modern text; the chat
template merely joins the messages as paragraphs. It reflects the views of its books' times.

## Licence
Weights and tokenizer: Apache-2.0. The training texts are in the public domain.
"""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a run consumed: optimizer steps, tokens read, active hours."""

    steps: int
    tokens: int
    hours: float


def model_card(
    name: str, shape: Shape, training: Training, results: dict[str, HeldOut], stride: int
) -> str:
    """README.md of the folder; `results` are those of every `stride`-th window."""
    rows = "\n".join(
        f"| {split} | {result.bits_per_byte:.4f} | {result.nats_per_token:.4f} "
        f"| {result.tokens} | {result.size} |"
        for split, result in results.items()
    )
    return CARD.format(
        name=name,
        role=ROLES[name],
        millions=shape.parameters() / 1e6,
        rows=rows,
        sampling=SAMPLED.format(stride=stride) if stride > 1 else WHOLE,
        hidden=shape.hidden,
        layers=shape.layers,
        intermediate=shape.intermediate,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        theta=shape.rope_theta,
        context=shape.context,
        vocab=shape.vocab,
        steps=training.steps,
        tokens=training.tokens / 1e6,
        hours=training.hours,
    )
