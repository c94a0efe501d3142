"""fastembed with the int8 file of ONNX Runtime as a custom model."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

from benchmarks.clock import Clock
from benchmarks.encoders.peers.onnx_file import int8_onnx_file
from benchmarks.encoders.peers.timed import timed

NAME = "local/all-MiniLM-L6-v2-int8"
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")


class FastEmbedEncoder:
    """Takes texts, returns normalized vectors."""

    def __init__(self) -> None:
        self._model: Any = None

    def load(self, model: str, _kind: str, num_threads: int, folder: str) -> None:
        own = Path(folder) / "fastembed"
        own.mkdir(parents=True, exist_ok=True)
        shutil.copy(int8_onnx_file(Path(model), Path(folder)), own / "model.onnx")
        for name in FILES:
            if (Path(model) / name).exists():
                shutil.copy(Path(model) / name, own / name)
        TextEmbedding.add_custom_model(
            model=NAME,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf=NAME),
            dim=384,
            model_file="model.onnx",
        )
        self._model = TextEmbedding(NAME, threads=num_threads, specific_model_path=str(own))

    def vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        return np.array(list(self._model.embed(texts, batch_size=len(texts))), dtype=np.float32)

    def seconds(self, texts: list[str], num_times: int, clock: Clock) -> list[float]:
        return timed(self.vectors, texts, num_times, clock)
