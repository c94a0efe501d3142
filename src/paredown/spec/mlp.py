"""Mlp: two linear layers with an activation between them, or three with a gate."""

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """An MLP: `down(activation(up(x)))`, or with a gate `down(activation(gate(x)) * up(x))` (arXiv
    2002.05202). `size` is the number of columns between its halves."""

    size: int
    is_gated: bool
    activation: Activation
    bias: bool = False

    @property
    def up_roles(self) -> tuple[str, ...]:
        """The linear layers that read the MLP's input."""
        return ("gate", "up") if self.is_gated else ("up",)

    def shapes(self, hidden_size: int, owner: str = "") -> dict[str, tuple[int, int]]:
        """Returns the shapes (out, in) of its linear layers. `owner` is the expert that they
        belong to."""
        prefix = f"{owner}." if owner else ""
        shapes = {
            f"{prefix}up": (self.size, hidden_size),
            f"{prefix}down": (hidden_size, self.size),
        }
        if self.is_gated:
            shapes[f"{prefix}gate"] = (self.size, hidden_size)
        return shapes
