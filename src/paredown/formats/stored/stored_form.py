"""What every format of quantized checkpoints offers to the room that reads them.

A `Quantization` is one checkpoint's quantization_config: it says which linear modules are stored as
codes. A `StoredForm` is how one of them is stored: the tensors it has, and the weight they make.
"""

from collections.abc import Mapping
from typing import Protocol

from paredown.formats.stored.kv_scheme import KVScheme
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import Weight
from paredown.spec.weight import WeightSpec


class StoredForm(Protocol):
    """One module's tensors, by what follows the module's name and a dot in theirs."""

    @property
    def spec(self) -> WeightSpec:
        """The spec of the weight that `decode` gives."""

    @property
    def name(self) -> str:
        """The name of what is stored, for people: that of `spec`, where the form has no name of its
        own."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of all tensors that belong to the module's weight."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is done otherwise than the file asks."""

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        """By suffix, for a weight of (out, in) `shape`. Raises CheckpointError for a shape that
        cannot have this form."""

    def settle(self, tensors: Mapping[str, StoredTensor], shape: tuple[int, int]) -> "StoredForm":
        """The form once the small tensors that say how others are to be read were looked at (their
        shapes are right); codes are not touched. Raises CheckpointError for senseless ones."""

    def decode(self, tensors: Mapping[str, StoredTensor]) -> Weight:
        """Raises CheckpointError for tensors that are missing or contradict each other."""


class Quantization(Protocol):
    """Which linear modules of a checkpoint are stored as codes, and how."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is done otherwise than the file asks, for the model as a whole."""

    @property
    def kv(self) -> KVScheme:
        """What keys and values are meant to be kept in."""

    def form_for(self, module: str) -> StoredForm | None:
        """The form of a module, None for one stored in floats."""

    def form_for_embedding(self, module: str) -> StoredForm | None:
        """The form of the table of embeddings; most formats know of linear modules alone, so that
        it is None."""
