"""ONNX Runtime in int8."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from benchmarks.clock import Clock
from benchmarks.encoders.peers.batch import Tokens
from benchmarks.encoders.peers.onnx_file import int8_onnx_file, mean_normalized
from benchmarks.encoders.peers.timed import timed


class OnnxRuntimeEncoder:
    """Takes texts, returns normalized vectors."""

    def __init__(self) -> None:
        self._session: Any = None
        self._tokens: Any = None

    def load(self, model: str, _kind: str, num_threads: int, folder: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        path = int8_onnx_file(Path(model), Path(folder))
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._tokens = Tokens(Path(model))

    def vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        batch = self._tokens.batch(texts)
        return mean_normalized(self._session.run(None, batch)[0], batch["attention_mask"])

    def seconds(self, texts: list[str], num_times: int, clock: Clock) -> list[float]:
        return timed(self.vectors, texts, num_times, clock)
