"""Writes a small Llama in Q4_K with a simple quantizer, because llama.cpp's own is not in the gguf
package."""

from dataclasses import replace
from pathlib import Path

import torch

from fakes.tiny_models import variant
from paredown.compress.convert.gguf_mixture import GGUFFormats
from paredown.compress.convert.write_gguf import write_gguf
from paredown.formats.gguf import q4_k, q8_0
from paredown.formats.gguf.block_format import BlockFormat
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.vocabulary import GGUFVocabulary
from references.q4_k import quantize

WRITTEN = replace(q4_k.FORMAT, quantize=lambda values_OI: q4_k.FORMAT.decode(quantize(values_OI)))


def write_q4_k(folder: Path, *, is_tied: bool = True, tables: BlockFormat = WRITTEN) -> Path:
    """Writes two layers of 256 and 512 columns; `tables` is the format of embedding and output
    layer."""
    write = variant("llama", hidden_size=256, intermediate_size=512, tie_word_embeddings=is_tied)
    write(folder / "source", torch.float32, 0)
    write_gguf(
        Checkpoint.open(folder / "source"),
        folder / "model.gguf",
        formats=GGUFFormats(linear=WRITTEN, output=tables, embedding=tables),
        vocabulary=GGUFVocabulary(metadata={}),
    )
    return folder / "model.gguf"


Q8_TABLES = q8_0.FORMAT
