"""Tiny random T5 checkpoints written by Transformers itself. Weights are wide, and norms random, so
that every missing term shows."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

VOCAB_SIZE = 300
EOS, START = 1, 0
MAX_POSITIONS = 400
DEVIATION = 0.15
SIZES = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 64,
    "d_kv": 32,
    "d_ff": 96,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": START,
}
CLASSES = {"t5": (T5Config, T5ForConditionalGeneration, SIZES)}
# As T5 was published, and as version 1.1 and FLAN-T5 are; and what lies between.
KINDS = {
    "relu-tied": ("relu", True),
    "relu-untied": ("relu", False),
    "gated-tied": ("gated-gelu", True),
    "gated-untied": ("gated-gelu", False),
}


def make_t5(kind: str, seed: int = 0, **changes: object) -> T5ForConditionalGeneration:
    """Returns a random model in eval mode."""
    feed_forward, is_tied = KINDS[kind]
    sizes = {**SIZES, **changes}
    torch.manual_seed(seed)
    config = T5Config(**sizes, feed_forward_proj=feed_forward, tie_word_embeddings=is_tied)
    model = T5ForConditionalGeneration(config).eval()
    if not is_tied:
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.shared.weight))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if parameter.ndim == 1 else 0.0
            # T5 has no scale of scores: it is in the weights of the queries.
            share = config.d_kv**-0.5 if name.endswith("Attention.q.weight") else 1.0
            parameter.copy_(centre + share * DEVIATION * torch.randn_like(parameter))
    return model


def write_t5(model: T5ForConditionalGeneration, folder: Path) -> None:
    """Writes the model with a config as older versions of Transformers wrote it."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = model.lm_head.weight is model.shared.weight
    config["n_positions"] = MAX_POSITIONS
    del config["scale_decoder_outputs"]
    (folder / "config.json").write_text(json.dumps(config))


def greedy_t5(
    model: T5ForConditionalGeneration, encoder_ids: list[int], num_tokens: int
) -> list[int]:
    """Returns the tokens that the model itself finds most likely, at most `num_tokens`."""
    found: Tensor = model.generate(
        torch.tensor([encoder_ids]),
        attention_mask=torch.ones(1, len(encoder_ids), dtype=torch.long),
        max_new_tokens=num_tokens,
        do_sample=False,
    )
    ids: list[int] = found[0, 1:].tolist()
    return ids
