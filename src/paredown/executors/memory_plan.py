"""MemoryPlan: the memory that running a checkpoint will take, added up before anything is
loaded."""

from dataclasses import dataclass, replace

from paredown.errors import CapacityError
from paredown.units import format_bytes

_REMEDY = (
    "Compress the original further (`paredown compress --recipe int4-g128`); serve and bench can "
    "also give less memory to KV pages (--kv-memory)."
)


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """The bytes by use. `load_bytes` is the temporary copy of the largest weight during packing.

    Packed weights that are mapped from a file count like others: a step reads them all, so their
    pages must stay in memory, though the system may share and drop them.
    """

    weight_bytes: int
    embedding_bytes: int
    kv_bytes: int
    step_bytes: int
    load_bytes: int

    @property
    def total_bytes(self) -> int:
        return (
            self.weight_bytes
            + self.embedding_bytes
            + self.kv_bytes
            + self.step_bytes
            + self.load_bytes
        )

    def without_packing(self) -> "MemoryPlan":
        """Returns the plan for weights that are packed already."""
        return replace(self, load_bytes=0)

    def beside(self, other: "MemoryPlan") -> "MemoryPlan":
        """Returns the plan of two models that are loaded one after the other."""
        return MemoryPlan(
            weight_bytes=self.weight_bytes + other.weight_bytes,
            embedding_bytes=self.embedding_bytes + other.embedding_bytes,
            kv_bytes=self.kv_bytes + other.kv_bytes,
            step_bytes=self.step_bytes + other.step_bytes,
            load_bytes=max(self.load_bytes, other.load_bytes),
        )

    def arithmetic(self) -> str:
        """Returns one line with the terms and their sum."""
        return (
            f"weights {format_bytes(self.weight_bytes)} + embedding "
            f"{format_bytes(self.embedding_bytes)} + KV pages {format_bytes(self.kv_bytes)} + "
            f"working memory {format_bytes(self.step_bytes)} + loading "
            f"{format_bytes(self.load_bytes)} = {format_bytes(self.total_bytes)}"
        )

    def check(self, available_bytes: int, *, remedy: str = _REMEDY) -> None:
        """Raises CapacityError, with the arithmetic, when the plan exceeds `available_bytes`."""
        if self.total_bytes > available_bytes:
            raise CapacityError(
                "The model does not fit in memory",
                seen=f"{self.arithmetic()}; available {format_bytes(available_bytes)}",
                remedy=remedy,
            )
