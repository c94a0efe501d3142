"""Paredown's own encoder. Its checkpoints are made by our recipes at the first call."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.clock import Clock
from benchmarks.encoders.cases import EncoderKind
from benchmarks.encoders.peers.timed import timed
from paredown import Encoder, compress_checkpoint

# By kind, the recipe whose checkpoint is measured; None: the folder as it is.
RECIPES: dict[EncoderKind, str | None] = {"int8": "w8a8", "bf16": "bf16", "fp32": None}


class ParedownEncoder:
    """Takes texts, returns normalized vectors."""

    def __init__(self) -> None:
        self._encoder: Any = None

    def load(self, model: str, kind: EncoderKind, num_threads: int, folder: str) -> None:
        self.load_recipe(model, RECIPES[kind], num_threads, folder)

    def load_recipe(self, model: str, recipe: str | None, num_threads: int, folder: str) -> None:
        path = Path(model)
        if recipe is not None:
            path = Path(folder) / recipe
            if not path.exists():
                compress_checkpoint(Path(model), path, recipe=recipe)
        self._encoder = Encoder(path, num_threads=num_threads)

    def vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        return np.asarray(self._encoder.embed(texts).vectors)

    def seconds(self, texts: list[str], num_times: int, clock: Clock) -> list[float]:
        return timed(self.vectors, texts, num_times, clock)
