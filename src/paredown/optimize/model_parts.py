"""The parts of a model that are quantized together: a layer, a role in all layers, one module.

Modules that read the same input and are fused when a model runs (q, k and v; gate and up) share
one format, as vLLM requires. "fused" parts are such modules of one layer.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from paredown.compress.steps import OUTPUT
from paredown.models.roles import linear_places, linear_roles
from paredown.spec.experts import EXPERTS, SHARED, role_kind
from paredown.spec.model import ModelSpec
from paredown.spec.roles import MLP_ROLES, QKV_ROLES

PartKind = Literal["layer", "role", "fused", "module"]
PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)


@dataclass(frozen=True, kw_only=True)
class Part:
    """`modules` are (layer, role) pairs; the output layer is (None, "head")."""

    kind: PartKind
    name: str
    modules: tuple[tuple[int | None, str], ...]

    def shapes(self, spec: ModelSpec) -> list[tuple[int, int]]:
        """Returns the shape (out, in) of each module."""
        known = {layer: spec.linear_shapes(layer) for layer, _ in self.modules if layer is not None}
        head = (spec.vocab_size, spec.hidden_size)
        return [head if layer is None else known[layer][role] for layer, role in self.modules]

    def num_weights(self, spec: ModelSpec) -> int:
        return sum(rows * columns for rows, columns in self.shapes(spec))


OUTPUT_PART = Part(kind="module", name="output layer", modules=((None, OUTPUT),))


def find_parts(spec: ModelSpec, kind: PartKind) -> list[Part]:
    """Returns all parts of that kind. Each linear layer of the transformer layers is in one of
    them; the output layer is in none (see OUTPUT_PART)."""
    layers = range(spec.num_layers)
    if kind == "layer":
        return [_part(kind, f"layer {layer}", layer, linear_roles(spec, layer)) for layer in layers]
    if kind == "module":
        return [
            _part(kind, f"layer {layer} {role}", layer, [role])
            for role, layer in linear_places(spec)
        ]
    groups = [(layer, roles) for layer in layers for roles in fused_roles(spec, layer)]
    if kind == "fused":
        return [
            _part(kind, f"layer {layer} {_kinds(roles)}", layer, roles) for layer, roles in groups
        ]
    modules: dict[str, list[tuple[int | None, str]]] = {}
    for layer, roles in groups:
        modules.setdefault(_kinds(roles), []).extend((layer, role) for role in roles)
    return [Part(kind=kind, name=name, modules=tuple(own)) for name, own in modules.items()]


def fused_roles(spec: ModelSpec, layer: int = 0) -> list[list[str]]:
    """Returns the roles of a layer that share one format: [q, k, v], [o], [gate, up], [down]. All
    experts of a layer share theirs, because they are fused too."""
    roles = linear_roles(spec, layer)
    together = [[*QKV_ROLES], ["o"], [role for role in MLP_ROLES if role != "down"], ["down"]]
    groups = [
        [role for own in group for role in roles if role_kind(role) == f"{owner}{own}"]
        for owner in ("", f"{EXPERTS}.", f"{SHARED}.")
        for group in together
    ]
    return [group for group in groups if group]


def _kinds(roles: list[str]) -> str:
    return " ".join(dict.fromkeys(map(role_kind, roles)))


def _part(kind: PartKind, name: str, layer: int, roles: list[str]) -> Part:
    return Part(kind=kind, name=name, modules=tuple((layer, role) for role in roles))
