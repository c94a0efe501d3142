"""sentence-transformers on PyTorch, in float32 or bfloat16."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import SentenceTransformer

from benchmarks.clock import Clock
from benchmarks.encoders.peers.timed import timed

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class SentenceTransformersEncoder:
    """Takes texts, returns normalized vectors."""

    def __init__(self) -> None:
        self._model: Any = None

    def load(self, model: str, kind: str, num_threads: int, _folder: str) -> None:
        torch.set_num_threads(num_threads)
        self._model = SentenceTransformer(model, device="cpu", model_kwargs={"dtype": DTYPES[kind]})

    def vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        found = self._model.encode(
            texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
        )
        return np.asarray(found.float().numpy())

    def seconds(self, texts: list[str], num_times: int, clock: Clock) -> list[float]:
        return timed(self.vectors, texts, num_times, clock)
