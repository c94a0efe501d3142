"""The interface that every format of quantized checkpoints offers to readers.

A `Quantization` is a checkpoint's quantization_config: it tells which linear modules are stored as
codes. A `StoredForm` tells how one of them is stored: its tensors, and the weight that they make.
"""

from collections.abc import Mapping
from typing import Protocol

from paredown.formats.stored.kv_scheme import KVScheme
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import Weight
from paredown.spec.weight import WeightSpec


class StoredForm(Protocol):
    """The tensors of one module, by suffix: the part of their names after the module's name and a
    dot."""

    @property
    def spec(self) -> WeightSpec:
        """The spec of the weight that `decode` returns."""

    @property
    def name(self) -> str:
        """The stored format's name for people: that of `spec`, unless the form has its own."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of all tensors that belong to the module's weight."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what is done differently from what the file asks."""

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """Returns the shapes by suffix, for a weight with `shape` (out, in). Raises
        CheckpointError for a shape that cannot have this form."""

    def settle(self, tensors: Mapping[str, StoredTensor], shape: tuple[int, int]) -> "StoredForm":
        """Returns the final form, from the small tensors that say how to read others; their shapes
        are already checked. Codes are not read. Raises CheckpointError for invalid ones."""

    def decode(self, tensors: Mapping[str, StoredTensor]) -> Weight:
        """Returns the weight. Raises CheckpointError for missing or contradictory tensors."""


class Quantization(Protocol):
    """Tells which linear modules of a checkpoint are stored as codes, and how."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what is done differently from what the file asks, for the model as a whole."""

    @property
    def kv(self) -> KVScheme:
        """How keys and values should be kept."""

    def form_for(self, module: str) -> StoredForm | None:
        """Returns the form of a module, None for one stored in floats."""

    def form_for_embedding(self, module: str) -> StoredForm | None:
        """Returns the form of the table of embeddings; None in most formats, which cover only
        linear modules."""
