"""Writes tiny models as folders, and as GGUF files made from them."""

from pathlib import Path

import torch

from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, variant
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.vocabulary import GGUFVocabulary

GGUF_VARIANTS = {
    **VARIANTS,
    **DECODER_VARIANTS,
    "olmo2-untied": variant("olmo2", tie_word_embeddings=False, num_key_value_heads=2),
    "olmo3-listed": variant(
        "olmo3",
        tie_word_embeddings=False,
        layer_types=["full_attention", "sliding_attention"] * 2,
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": 1e4}
            for kind in ("full_attention", "sliding_attention")
        },
    ),
    "phi3-partial": variant(
        "phi3",
        sliding_window=1000,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
    ),
    "gpt-neox-one-after-the-other": variant("gpt_neox", use_parallel_residual=False),
    "gemma2-no-caps": variant(
        "gemma2",
        query_pre_attn_scalar=32,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
    ),
    # The score scale matches the head size, the only case that llama.cpp supports.
    "gemma2-as-llama-cpp": variant("gemma2", query_pre_attn_scalar=32),
}
# These models have no vocabulary, and reading weights needs none.
NO_WORDS = GGUFVocabulary(metadata={})


def write_pair(
    folder: Path, variant: str, dtype: torch.dtype = torch.bfloat16, formats: str | None = None
) -> tuple[Checkpoint, Checkpoint]:
    """Returns the checkpoints of the folder and of the GGUF file."""
    GGUF_VARIANTS[variant](folder / "source", dtype, 0)
    source = Checkpoint.open(folder / "source")
    write_gguf(
        source,
        folder / "model.gguf",
        vocabulary=NO_WORDS,
        formats=None if formats is None else GGUF_FORMATS[formats],
    )
    return source, Checkpoint.open(folder / "model.gguf")
