"""The parts of a model that are quantized together: a layer, a role in all layers, one module.

Modules that read the same input and are fused when a model runs (q, k and v; gate and up) share one
format, which vLLM needs; "fused" parts are those of one layer.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from paredown.compress.recipe import HEAD
from paredown.models.roles import MLP_ROLES, QKV_ROLES, linear_roles
from paredown.spec.model import ModelSpec

PartKind = Literal["layer", "role", "fused", "module"]
PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)


@dataclass(frozen=True, kw_only=True)
class Part:
    """`modules` are (layer, role) pairs; that of the output layer is (None, "head")."""

    kind: PartKind
    name: str
    modules: tuple[tuple[int | None, str], ...]

    def shapes(self, spec: ModelSpec) -> list[tuple[int, int]]:
        """(out, in) of each module."""
        known = {**spec.linear_shapes(), HEAD: (spec.vocab_size, spec.hidden_size)}
        return [known[role] for _, role in self.modules]

    def num_weights(self, spec: ModelSpec) -> int:
        return sum(rows * columns for rows, columns in self.shapes(spec))


HEAD_PART = Part(kind="module", name="output layer", modules=((None, HEAD),))


def find_parts(spec: ModelSpec, kind: PartKind) -> list[Part]:
    """All parts of that kind; each linear layer of the transformer layers is in one of them. The
    output layer is in none: see HEAD_PART."""
    layers, groups = range(spec.num_layers), fused_roles(spec)
    if kind == "layer":
        return [_part(kind, f"layer {layer}", [layer], linear_roles(spec)) for layer in layers]
    if kind == "role":
        return [_part(kind, " ".join(roles), list(layers), roles) for roles in groups]
    if kind == "fused":
        return [
            _part(kind, f"layer {layer} {' '.join(roles)}", [layer], roles)
            for layer in layers
            for roles in groups
        ]
    return [
        _part(kind, f"layer {layer} {role}", [layer], [role])
        for layer in layers
        for role in linear_roles(spec)
    ]


def fused_roles(spec: ModelSpec) -> list[list[str]]:
    """Roles that share one format, as a layer has them: [q, k, v], [o], [gate, up], [down]."""
    roles = linear_roles(spec)
    together = [[*QKV_ROLES], ["o"], [role for role in MLP_ROLES if role != "down"], ["down"]]
    return [[role for role in group if role in roles] for group in together]


def _part(kind: PartKind, name: str, layers: list[int], roles: list[str]) -> Part:
    modules = tuple((layer, role) for layer in layers for role in roles)
    return Part(kind=kind, name=name, modules=modules)
