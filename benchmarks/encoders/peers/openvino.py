"""OpenVINO in int8: weights and activations, quantized by NNCF with sentences of STS-B, as
sentence-transformers' own static export does."""

import os
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import numpy.typing as npt
import openvino

from benchmarks.clock import Clock
from benchmarks.encoders.peers.batch import Tokens
from benchmarks.encoders.peers.onnx_file import mean_normalized, onnx_file
from benchmarks.encoders.peers.timed import timed
from paredown.errors import ConfigError
from paredown.evaluate.texts.text import DATA_VARIABLE

NUM_SENTENCES = 300
SENTENCE_COLUMN = 5


class OpenVINOEncoder:
    """Takes texts, returns normalized vectors."""

    def __init__(self) -> None:
        self._model: Any = None
        self._tokens: Any = None

    def load(self, model: str, _kind: str, num_threads: int, folder: str) -> None:
        path = Path(folder) / "openvino_int8.xml"
        self._tokens = Tokens(Path(model))
        if not path.exists():
            floats = openvino.Core().read_model(onnx_file(Path(model), Path(folder)))
            data = nncf.Dataset([self._tokens.batch([text]) for text in _sentences()])
            quantized = nncf.quantize(
                floats, data, model_type=nncf.ModelType.TRANSFORMER, subset_size=NUM_SENTENCES
            )
            openvino.save_model(quantized, path)
        properties = {"INFERENCE_NUM_THREADS": num_threads, "PERFORMANCE_HINT": "LATENCY"}
        self._model = openvino.Core().compile_model(path, "CPU", properties)

    def vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        batch = self._tokens.batch(texts)
        return mean_normalized(self._model(batch)[0], batch["attention_mask"])

    def seconds(self, texts: list[str], num_times: int, clock: Clock) -> list[float]:
        return timed(self.vectors, texts, num_times, clock)


def _sentences() -> list[str]:
    """Returns the first sentences of STS-B's training file, which has no header. Raises ConfigError
    without it."""
    folder = os.environ.get(DATA_VARIABLE)
    path = Path(folder or "") / "tasks" / "glue" / "STS-B" / "sts-train.csv"
    if folder is None or not path.is_file():
        raise ConfigError(
            "OpenVINO's int8 is made with sentences of STS-B",
            seen=f"{DATA_VARIABLE} is not set" if folder is None else f"no file {path}",
            remedy=f"Let {DATA_VARIABLE} name the folder that has tasks/glue/STS-B.",
        )
    lines = path.read_text(encoding="utf-8-sig").splitlines()[:NUM_SENTENCES]
    return [line.split("\t")[SENTENCE_COLUMN] for line in lines]
