"""An MLP's activation, in PyTorch."""

from torch import Tensor
from torch.nn import functional

from paredown.spec.mlp import Activation


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Applies the activation elementwise."""
    if activation == "silu":
        return functional.silu(x)
    if activation == "relu":
        return functional.relu(x)
    return functional.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")
