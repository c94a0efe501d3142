"""The tensors of a cut model, each taken from its source when it is asked for.

What stays of a tensor keeps its bits. Only weights that compensate for what was removed are new.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paredown.compress.cut.kept_units import Indices, KeptUnits
from paredown.formats.tensor import StoredTensor
from paredown.models.check_tensors import vector_tensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.fused_rows import fused_rows, own_rows
from paredown.models.roles import layer_vectors, linear_roles
from paredown.spec.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A part of a source's tensor: `axes` has the indices that stay, by axis."""

    source: str
    axes: Mapping[int, Indices]


class CutTensors(Mapping[str, StoredTensor]):
    """The tensors of `spec`, which the kept units of its layers leave of `source`. `made` replaces
    tensors by their names in the source, with the shape that they have after the cut."""

    def __init__(
        self,
        source: Checkpoint,
        spec: ModelSpec,
        kept: Sequence[KeptUnits],
        made: Mapping[str, StoredTensor],
    ) -> None:
        assert len(kept) == spec.num_layers
        self._source = source
        self._made = made
        parts: dict[str, _Part] = {}
        for index, units in enumerate(kept):
            parts |= _layer_parts(source, spec, index, units)
        taken = {part.source for part in parts.values()}
        in_layers = {
            name for layer in range(source.spec.num_layers) for name in _names(source, layer)
        }
        assert taken <= in_layers
        # The order of the source, with the layers where the first of them stood.
        self._parts: dict[str, _Part] = {}
        for name in source.tensors:
            if name not in in_layers:
                self._parts[name] = _Part(source=name, axes={})
            elif parts:
                self._parts |= parts
                parts = {}

    def __getitem__(self, name: str) -> StoredTensor:
        part = self._parts[name]
        made = self._made.get(part.source)
        if made is not None:
            return made
        tensor = self._source.tensors[part.source]
        array = tensor.array
        for axis, indices in part.axes.items():
            array = np.take(array, indices, axis)
        return StoredTensor(dtype=tensor.dtype, array=np.ascontiguousarray(array))

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def _names(source: Checkpoint, layer: int) -> Iterator[str]:
    """Yields the names of a layer's tensors."""
    names, spec = source.names, source.spec
    for role in linear_roles(spec, layer):
        yield f"{names.linear(role, layer)}.weight"
    for role in layer_vectors(spec, layer):
        yield vector_tensor(names, role, layer)
    for role in spec.router_shapes(layer):
        yield f"{names.router(role, layer)}.weight"


def _layer_parts(
    source: Checkpoint, spec: ModelSpec, index: int, units: KeptUnits
) -> dict[str, _Part]:
    """Returns the parts of layer `index` of the cut model by their names there."""
    names, before = source.names, source.spec.layers[units.layer]
    parts = {}
    for name, roles in names.modules(linear_roles(spec, index), index).items():
        own = [units.source_role(role) for role in roles]
        module = names.linear(own[0], units.layer)
        rows = _module_rows(source, spec, index, units, own)
        columns = units.columns(own[0], before)
        axes = {axis: one for axis, one in ((0, rows), (1, columns)) if one is not None}
        if names.source(own[0]).transposed:
            axes = {1 - axis: one for axis, one in axes.items()}
        parts[f"{name}.weight"] = _Part(source=f"{module}.weight", axes=axes)
        if f"{roles[0]}.bias" in layer_vectors(spec, index):
            bias = {} if rows is None else {0: rows}
            parts[f"{name}.bias"] = _Part(source=f"{module}.bias", axes=bias)
    for role in layer_vectors(spec, index):
        if role.rsplit(".", 1)[0] in spec.layers[index].norms.by_role():
            old = vector_tensor(names, role, units.layer)
            parts[vector_tensor(names, role, index)] = _Part(source=old, axes={})
    for role in spec.router_shapes(index):
        rows = units.rows(role, before)
        parts[f"{names.router(role, index)}.weight"] = _Part(
            source=f"{names.router(role, units.layer)}.weight",
            axes={} if rows is None else {0: rows},
        )
    return parts


def _module_rows(
    source: Checkpoint, spec: ModelSpec, index: int, units: KeptUnits, roles: Sequence[str]
) -> Indices | None:
    """Returns the rows that stay of the module that holds these roles; None if all do."""
    names, before = source.names, source.spec.layers[units.layer]
    kept = [units.rows(role, before) for role in roles]
    if all(one is None for one in kept):
        return None
    shapes = source.spec.linear_shapes(units.layer)
    sizes = [shapes[role][0] for role in roles]
    num_blocks = names.num_blocks(roles[0], before)
    every = np.arange(sum(sizes))
    own = [every[own_rows(sizes, part, num_blocks)] for part in range(len(roles))]
    chosen = [rows if one is None else rows[one] for rows, one in zip(own, kept, strict=True)]
    return fused_rows(chosen, names.num_blocks(roles[0], spec.layers[index]))
