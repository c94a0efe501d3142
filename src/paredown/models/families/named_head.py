"""NamedHead: a head, and what a checkpoint calls the tensors of its steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paredown.spec.head import Head, HeadKind, HeadStep, PoolingKind


@dataclass(frozen=True, kw_only=True)
class NamedStep:
    """A step and its modules. "{prefix}" stands for the prefix of the encoder's own tensors. The
    bias lies at `bias` where that is not "<module>.bias"."""

    step: HeadStep
    module: str
    norm: str = ""
    bias: str = ""

    def tensors(self) -> dict[str, str]:
        """Returns the names of its tensors by what they are: "weight", "bias", "norm.weight"."""
        found = {} if self.step.is_tied else {"weight": f"{self.module}.weight"}
        if self.step.has_bias:
            found["bias"] = self.bias or f"{self.module}.bias"
        if self.step.norm is not None:
            found |= {f"norm.{part}": f"{self.norm}.{part}" for part in self.step.norm.parts}
        return found


@dataclass(frozen=True, kw_only=True)
class NamedHead:
    """`tensors` has the name of each tensor by its role: "head.0.weight", "head.token.0.bias"."""

    head: Head
    tensors: Mapping[str, str]

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Returns the names with the prefix of the encoder's own tensors filled in."""
        return {role: name.replace("{prefix}", prefix) for role, name in self.tensors.items()}


def named_head(
    kind: HeadKind,
    *,
    token_steps: Sequence[NamedStep] = (),
    pooling: Sequence[PoolingKind] = (),
    steps: Sequence[NamedStep] = (),
    is_normalized: bool = False,
) -> NamedHead:
    """Puts a head together from its steps."""
    head = Head(
        kind=kind,
        token_steps=tuple(one.step for one in token_steps),
        pooling=tuple(pooling),
        steps=tuple(one.step for one in steps),
        is_normalized=is_normalized,
    )
    tensors = {
        f"{role}.{part}": name
        for role, one in zip(head.steps_by_role(), (*token_steps, *steps), strict=True)
        for part, name in one.tensors().items()
    }
    return NamedHead(head=head, tensors=tensors)
