"""BlockFormat: how a GGUF file holds the rows of a tensor, in blocks of columns with their own
scales (https://github.com/ggml-org/llama.cpp, ggml-common.h)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paredown.formats.weight import CoreWeight
from paredown.spec.weight import WeightSpec, bits_per_weight

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Values converted at once; this limits the temporary floats to some tens of megabytes.
CHUNK_VALUES = 1 << 21


@dataclass(frozen=True, kw_only=True)
class BlockFormat:
    """A row of formats/gguf/table.py: a type with `block_bytes` for every `block_columns`.

    `spec`       the spec of the weight that `decode` returns
    `is_exact`   whether that weight has the numbers of the file; else they are dequantized
    `decode`     returns the weight in a tensor's rows [O, bytes]; raises CheckpointError for
                 scales or floats that are not finite
    `encode`     returns the rows of a weight of that spec; raises UnsupportedError for numbers
                 that they cannot hold. None where nothing is written in this format
    `quantize`   rounds floats [O, I] as llama.cpp does; raises UnsupportedError for groups that do
                 not divide the columns or scales beyond fp16, CheckpointError for values that are
                 not finite. None for floats, and where nothing is made in this format
    `file_type`  llama.cpp's number for a file in which most tensors have this format
    """

    name: str
    type_id: int
    block_columns: int
    block_bytes: int
    spec: WeightSpec
    decode: Callable[[Bytes], CoreWeight]
    is_exact: bool = True
    encode: Callable[[Any], Bytes] | None = None
    quantize: Callable[[Floats], CoreWeight] | None = None
    file_type: int | None = None

    @property
    def is_quantized(self) -> bool:
        return self.block_columns > 1

    @property
    def note(self) -> str | None:
        """Says how its weights are held differently from the file; None where they are not."""
        if not self.is_exact:
            return f"are dequantized to {self.spec.name}: there is no kernel for that format"
        if self.held_bits <= 8 * self.block_bytes / self.block_columns:
            return None
        bits = f"{self.held_bits:.4g} bits a weight"
        return f"are held as {self.spec.name}: the same values in {bits}"

    @property
    def held_bits(self) -> float:
        """The bits per weight in memory."""
        return bits_per_weight(self.spec, self.block_columns, "fp16")

    def row_bytes(self, num_columns: int) -> int:
        return num_columns // self.block_columns * self.block_bytes
