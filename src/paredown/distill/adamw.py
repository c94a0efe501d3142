"""AdamW (arXiv 1711.05101) on float32 parameters, with gradients clipped by their norm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paredown.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class AdamWConfig:
    """`weight_decay` shrinks matrices, not vectors. The norm of all gradients together is at most
    `clip_norm`. Raises ConfigError for numbers out of range."""

    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        if not (all(0 <= beta < 1 for beta in self.betas) and self.eps > 0):
            raise ConfigError(
                "the moving averages of the optimizer are out of range",
                seen=f"betas {self.betas}, eps {self.eps:g}",
                remedy="Give betas from 0 to below 1, and an eps above 0.",
            )
        if not (self.weight_decay >= 0 and self.clip_norm > 0):
            raise ConfigError(
                "weight decay or the largest norm of the gradients is out of range",
                seen=f"{self.weight_decay:g} and {self.clip_norm:g}",
                remedy="Give a decay of 0 or more and a norm above 0.",
            )


class AdamW:
    """The optimizer of named parameters. `held` has, for some of them, a mask of the weights that
    stay exactly 0: they get no gradient, so neither momentum nor decay moves them. `rate_factors`
    has, for some, how many times the learning rate they are moved by."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        config: AdamWConfig,
        held: Mapping[str, Tensor],
        rate_factors: Mapping[str, float],
    ) -> None:
        self.parameters = dict(parameters)
        self.config = config
        self._held = dict(held)
        self._rate_factors = [rate_factors.get(name, 1.0) for name in self.parameters]
        groups = [
            {"params": [one], "weight_decay": config.weight_decay if one.dim() > 1 else 0.0}
            for one in self.parameters.values()
        ]
        self._adam = torch.optim.AdamW(
            groups, lr=0.0, betas=config.betas, eps=config.eps, fused=True
        )

    def step(self, gradients: Sequence[Tensor], rate: float) -> float:
        """Moves the parameters and returns the norm of the gradients, which are scaled in place.
        Where the norm is not a finite number nothing moves."""
        for (name, parameter), gradient in zip(self.parameters.items(), gradients, strict=True):
            if name in self._held:
                gradient.masked_fill_(self._held[name], 0.0)
            parameter.grad = gradient
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if norm < float("inf"):
            if norm > self.config.clip_norm:
                torch._foreach_mul_(list(gradients), self.config.clip_norm / norm)
            for group, factor in zip(self._adam.param_groups, self._rate_factors, strict=True):
                group["lr"] = factor * rate
            self._adam.step()
        self._adam.zero_grad()
        return norm

    def state(self) -> dict[str, object]:
        """Returns the moving averages, as torch saves them."""
        return self._adam.state_dict()

    def load(self, state: dict[str, object]) -> None:
        self._adam.load_state_dict(state)
