"""ModelReport: what a server tells of the checkpoint that it serves, and of its proof."""

import json
from collections.abc import Mapping

from paredown.compress.size import checkpoint_bits_per_weight
from paredown.errors import CheckpointError
from paredown.evaluate.quality.measurement import linear_format_name
from paredown.evaluate.verify.verification_file import verification_path
from paredown.executors.encoder_protocol import EncoderExecutor
from paredown.executors.protocol import LoadedExecutor
from paredown.models.checkpoint import Checkpoint
from paredown.units import MEBI

# Thousands of layers fit. Everybody who asks gets the figures whole.
MAX_FIGURES_CHARS = MEBI


class ModelReport:
    """Grows while the model loads: first come the `checkpoint` and the `figures` of its
    verification.json, then how it `runs` and what the `check` against the proof found. What is not
    known, or not yet, is None."""

    def __init__(self, checkpoint: Checkpoint, figures: Mapping[str, object] | None) -> None:
        """Raises CheckpointError for figures that are too long to be shown."""
        self.checkpoint = _describe(checkpoint)
        self.figures = figures
        self.check: str | None = None
        self.runs: dict[str, object] | None = None
        num_chars = len(json.dumps(figures))
        if num_chars > MAX_FIGURES_CHARS:
            raise CheckpointError(
                f"{verification_path(checkpoint.path)} is too long to be shown",
                seen=f"{num_chars} characters of figures, at most {MAX_FIGURES_CHARS}",
                remedy="Verify the checkpoint again, or go on all the same with --no-verify.",
            )

    def note_decoder(self, executor: LoadedExecutor) -> None:
        """Keeps how a model that generates runs."""
        self.runs = {
            "weight_bytes": executor.weight_bytes,
            "kv_format": executor.kv.name(executor.spec.num_layers),
            "kv_token_bytes": executor.kv_token_bytes,
            "num_kv_tokens": executor.kv.num_tokens,
            "num_threads": executor.threads.prefill,
            "num_decode_threads": executor.threads.decode,
        }

    def note_encoder(self, executor: EncoderExecutor) -> None:
        """Keeps how an encoder runs."""
        self.runs = {
            "weight_bytes": executor.weight_bytes,
            "num_threads": executor.threads.prefill,
        }

    def as_json(self) -> dict[str, object]:
        return {
            "checkpoint": self.checkpoint,
            "runs": self.runs,
            "verification": {"check": self.check, "figures": self.figures},
        }


def _describe(checkpoint: Checkpoint) -> dict[str, object]:
    spec = checkpoint.spec
    return {
        "family": spec.family,
        "num_parameters": spec.num_parameters(),
        "num_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "linear_format": linear_format_name(checkpoint),
        "bits_per_weight": checkpoint_bits_per_weight(checkpoint),
        "file_bytes": checkpoint.file_bytes,
        "notes": list(checkpoint.notes),
    }
