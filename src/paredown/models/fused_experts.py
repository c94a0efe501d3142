"""Splits tensors that hold all experts of a layer, as Transformers 5 may save them, into one tensor
for each expert.

`experts.gate_up_proj` is [experts, 2 size, hidden], the gate's rows first; `experts.down_proj` is
[experts, hidden, size]. An expert's rows are contiguous, so each weight is a view and nothing is
copied.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from paredown.errors import CheckpointError
from paredown.models.families.family import Family
from paredown.models.files.safetensors_header import TensorPlace
from paredown.models.files.shards import FolderTensors
from paredown.spec.experts import EXPERTS

_OWNER = r"(?P<prefix>(?:.*\.)?)layers\.(?P<layer>\d+)\.(?P<owner>mlp|block_sparse_moe)"
_FUSED = re.compile(rf"{_OWNER}\.experts\.(?P<kind>gate_up|down)_proj(?:\.weight)?")
_ROUTER = re.compile(rf"{_OWNER}\.gate\.weight")
_ROLES = {"gate_up": ("gate", "up"), "down": ("down",)}


def split_experts(tensors: FolderTensors, family: Family) -> FolderTensors:
    """Returns the tensors under the family's names for each expert, unchanged if no tensor holds
    several experts. Raises CheckpointError for such a tensor of an unexpected shape."""
    if not family.routers or not any(_FUSED.fullmatch(name) for name in tensors):
        return tensors
    files = []
    for file in tensors.files:
        places = {}
        for name, place in file.places.items():
            for own_name, own_place in _split(name, place, family):
                places[name if own_name in tensors else own_name] = own_place
        files.append(file.with_places(places))
    return FolderTensors(files)


def _split(name: str, place: TensorPlace, family: Family) -> Iterator[tuple[str, TensorPlace]]:
    """Yields a tensor's name and place, or those of the weights that it holds."""
    router = _ROUTER.fullmatch(name)
    if router is not None:
        module = family.routers["router"].format(layer=router["layer"])
        yield f"{router['prefix']}{module}.weight", place
        return
    fused = _FUSED.fullmatch(name)
    if fused is None:
        yield name, place
        return
    roles = _ROLES[fused["kind"]]
    if len(place.shape) != 3 or place.shape[1] % len(roles):
        raise CheckpointError(
            f"tensor {name!r} does not hold the experts of a layer",
            seen=f"shape {list(place.shape)}",
            remedy=f"It must be [experts, {'2 size, hidden' if len(roles) > 1 else 'hidden, size'}]"
            "; save the model with Transformers again.",
        )
    num_experts, num_rows, num_columns = place.shape
    num_bytes = (place.end - place.start) // max(1, num_experts * len(roles))
    start = place.start
    for expert in range(num_experts):
        for role in roles:
            module = family.linears[f"{EXPERTS}.{role}"].module
            full = fused["prefix"] + module.format(layer=fused["layer"], expert=expert)
            shape = (num_rows // len(roles), num_columns)
            yield (
                f"{full}.weight",
                replace(place, shape=shape, start=start, end=start + num_bytes),
            )
            start += num_bytes
