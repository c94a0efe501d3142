"""Students, teachers and samplings for tests of on-policy training."""

from pathlib import Path

import numpy as np
import torch

from drivers.tiny_training import VOCAB_SIZE
from fakes.tiny_models import make_model
from paredown.distill.forward import fuse_attention
from paredown.distill.on_policy.prompts import Prompts
from paredown.distill.on_policy.samples import Samples
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.teacher import DecoderTeacher
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder


def write_llama(folder: Path, seed: int, **changes: object) -> Path:
    make_model("llama", torch.float32, seed, **changes).save_pretrained(folder)
    return folder


def load_student(folder: Path) -> Decoder:
    student = Decoder.from_checkpoint(Checkpoint.open(folder))
    fuse_attention(student)
    return student


def load_teacher(folder: Path) -> DecoderTeacher:
    return DecoderTeacher.load(Checkpoint.open(folder), "fp32")


def prompts_of(lengths: list[int], seed: int = 1) -> Prompts:
    random = np.random.default_rng(seed)
    drawn = [random.integers(0, VOCAB_SIZE, length).tolist() for length in lengths]
    return Prompts(token_ids=tuple(tuple(ids) for ids in drawn))


def sampling_of(prompts: Prompts, max_new_tokens: int = 6, **changes: object) -> Sampling:
    """Reads all prompts at each step, unless `changes` say otherwise."""
    fields: dict[str, object] = {
        "stop_ids": frozenset[int](),
        "arithmetic": "fp32",
        "num_prompts": prompts.num_prompts,
    }
    return Sampling(
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        **(fields | changes),  # type: ignore[arg-type]
    )


def log_probabilities(decoder: Decoder, drawn: Samples, vocab_size: int) -> torch.Tensor:
    """What the plain decoder gives the token at each place, of so many tokens, [B, T]; 0 for the
    first."""
    found_BT = torch.zeros(drawn.tokens_BT.shape)
    log_BTV = decoder(drawn.tokens_BT[:, :-1])[..., :vocab_size].log_softmax(-1)
    found_BT[:, 1:] = log_BTV.gather(-1, drawn.tokens_BT[:, 1:, None])[..., 0]
    return found_BT
