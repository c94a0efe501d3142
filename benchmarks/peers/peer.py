"""Peer: what the benchmark asks of every engine it measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.checkpoints.cache import Variant

PeerKVDType = Literal["bf16", "int8"]


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """`num_tokens` is the most that one sequence holds, `num_sequences` how many run together."""

    num_threads: int
    num_tokens: int
    num_sequences: int = 1
    kv_dtype: PeerKVDType = "bf16"


@dataclass(frozen=True, kw_only=True)
class PeerInfo:
    """`instruction_sets` is what the peer itself says it uses."""

    version: str
    instruction_sets: str


class Peer(Protocol):
    """Runs in a process of its own. Prompts are token ids; nothing is sampled where the engine
    lets one go without: the next token of a decode is any token."""

    def info(self) -> PeerInfo: ...

    def load(self, root: Path, variant: Variant, options: LoadOptions) -> None:
        """Opens a model, in place of the one before. Raises UnsupportedError for what the peer
        cannot run."""
        ...

    def prefill(self, token_ids: Sequence[int]) -> float:
        """Seconds from an empty cache to the logits of the last token."""
        ...

    def decode(self, prompts: Sequence[Sequence[int]], num_steps: int) -> float:
        """Seconds of `num_steps` steps that each add a token to every prompt; reading the prompts
        is not counted, and may be left out where the last call had the same."""
        ...

    def settings(self) -> dict[str, str]:
        """What was chosen for the loaded model, by measurement or by the engine."""
        ...

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Of the last token. Raises UnsupportedError where the engine does not show them."""
        ...

    def close(self) -> None:
        """Frees the model."""
        ...
