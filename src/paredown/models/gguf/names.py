"""Maps a model's tensors to their names and row order in GGUF.

Differences between families are in the family's own file (families/gguf_rows.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from paredown.models.check_tensors import vector_tensor
from paredown.models.fused_rows import fused_rows
from paredown.models.names import Names
from paredown.models.roles import layer_vectors, model_vectors
from paredown.spec.experts import expert_index, role_kind
from paredown.spec.head import HeadKind
from paredown.spec.model import ModelSpec
from paredown.spec.roles import QKV_ROLES

T = TypeVar("T", bound=np.generic)

EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
# The norms outside the layers, and the tables beside the embedding, by our roles.
MODEL_NORMS = {"final_norm": "output_norm", "embedding_norm": "token_embd_norm"}
TABLES = {"positions": "position_embd.weight", "token_types": "token_types.weight"}
# The modules of a head's steps, by its kind.
HEADS: Mapping[HeadKind, tuple[str, ...]] = {
    "classification": ("cls", "cls.output"),
    "embedding": ("dense_2", "dense_3"),
}
ROPE_FACTORS = "rope_freqs.weight"
FUSED_QKV = "attn_qkv"
# LongRoPE's factors, for texts within the original context and for longer ones.
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
ALL_FACTORS = (ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS)


@dataclass(frozen=True, kw_only=True)
class GGUFTensor:
    """A tensor that is `name` in the file and `our_name` in a Hugging Face folder. `paired_heads`
    is the number of heads whose rows are stored in pairs, 0 for rows in order. `offset` is added to
    the values in the file.

    `parts` are the rows of each role of a fused module, in order: one after the other in the file,
    and in each of `num_blocks` equal blocks in a folder. `first_row` marks a part of the tensor
    `name` that starts at that row. `experts` are the folder's names for a tensor that holds all
    experts of a layer, [E, rows, columns].
    """

    name: str
    our_name: str
    role: str
    layer: int | None
    shape: tuple[int, ...]
    paired_heads: int = 0
    offset: float = 0.0
    parts: Mapping[str, int] = field(default_factory=dict)
    num_blocks: int = 1
    first_row: int | None = None
    experts: tuple[str, ...] = ()

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Returns the shape in the file, where a matrix of one row is a vector."""
        return self.shape[1:] if self.role == "shared_gate" else self.shape

    @property
    def is_linear(self) -> bool:
        """Returns whether it is the weight of linear layers or the embedding, which may be codes:
        not a vector, a router, another table or a part of the head."""
        is_float = self.role in ("router", "shared_gate", *TABLES) or self.is_of_head
        return len(self.shape) > 1 and not is_float

    @property
    def is_of_head(self) -> bool:
        return self.role.startswith("head.")

    def of_expert(self, index: int) -> "GGUFTensor":
        """Returns the part of one expert."""
        num_rows = self.shape[1]
        return replace(
            self,
            our_name=self.experts[index],
            shape=self.shape[1:],
            first_row=index * num_rows,
            experts=(),
        )


def gguf_tensors(spec: ModelSpec, names: Names) -> Iterator[GGUFTensor]:
    """Yields every tensor of the model once, layer by layer; a tied output layer is omitted."""
    table = (spec.vocab_size, spec.hidden_size)
    yield _outside_layers(EMBEDDING, f"{names.embedding}.weight", "embedding", table)
    if spec.has_own_output:
        yield _outside_layers(OUTPUT, f"{names.output}.weight", "output", table)
    yield from _tables(spec, names)
    yield from _head_tensors(spec, names)
    for role, size in model_vectors(spec).items():
        yield GGUFTensor(
            name=_suffixed(MODEL_NORMS.get(role.rsplit(".", 1)[0], "output"), role),
            our_name=vector_tensor(names, role, None),
            role=role,
            layer=None,
            shape=(size,),
            offset=_norm_offset(names, role),
        )
    for layer in range(spec.num_layers):
        yield from _layer_tensors(spec, names, layer)


def unpair_rows(rows_OB: npt.NDArray[np.uint8], num_heads: int) -> npt.NDArray[np.uint8]:
    """Reorders the rows of each head from neighbours to halves."""
    num_rows, num_bytes = rows_OB.shape
    pairs = rows_OB.reshape(num_heads, num_rows // num_heads // 2, 2, num_bytes)
    return pairs.swapaxes(1, 2).reshape(num_rows, num_bytes)


def pair_rows(rows_OB: npt.NDArray[np.uint8], num_heads: int) -> npt.NDArray[np.uint8]:
    """Reorders the rows of each head from halves to neighbours: 0, d/2, 1, d/2 + 1, ..."""
    num_rows, num_bytes = rows_OB.shape
    halves = rows_OB.reshape(num_heads, 2, num_rows // num_heads // 2, num_bytes)
    return halves.swapaxes(1, 2).reshape(num_rows, num_bytes)


def inside_fused(tensor: GGUFTensor, spec: ModelSpec) -> GGUFTensor | None:
    """Returns the query, key or value as a part of the fused tensor of older files; None for any
    other tensor."""
    owner = tensor.role.removesuffix(".bias")
    if owner not in QKV_ROLES or tensor.layer is None or len(tensor.parts) != 1:
        return None
    shapes = spec.linear_shapes(tensor.layer)
    before = QKV_ROLES[: QKV_ROLES.index(owner)]
    return replace(
        tensor,
        name=f"blk.{tensor.layer}.{FUSED_QKV}.{tensor.name.rsplit('.', 1)[1]}",
        first_row=sum(shapes[role][0] for role in before),
    )


def folder_rows(tensor: GGUFTensor, rows: npt.NDArray[T]) -> npt.NDArray[T]:
    """Returns the rows or biases of a fused module in the order of a folder."""
    if tensor.num_blocks == 1:
        return rows
    ends = np.cumsum(list(tensor.parts.values()))
    return fused_rows(np.split(rows, ends[:-1]), tensor.num_blocks)


def _outside_layers(name: str, our_name: str, role: str, shape: tuple[int, ...]) -> GGUFTensor:
    return GGUFTensor(name=name, our_name=our_name, role=role, layer=None, shape=shape)


def _tables(spec: ModelSpec, names: Names) -> Iterator[GGUFTensor]:
    if spec.position_shape is not None:
        our_name = f"{names.position_embedding}.weight"
        yield _outside_layers(TABLES["positions"], our_name, "positions", spec.position_shape)
    if spec.embedding.num_token_types:
        our_name = f"{names.token_type_embedding}.weight"
        shape = (spec.embedding.num_token_types, spec.hidden_size)
        yield _outside_layers(TABLES["token_types"], our_name, "token_types", shape)


def _head_tensors(spec: ModelSpec, names: Names) -> Iterator[GGUFTensor]:
    if spec.head is None:
        return
    modules = HEADS.get(spec.head.kind, ())
    shapes = spec.head.step_shapes(spec.hidden_size)
    for role, our_name in names.head.items():
        step, part = role.rsplit(".", 1)
        shape = shapes[step] if part == "weight" else (shapes[step][0],)
        module = modules[int(step.removeprefix("head."))]
        yield _outside_layers(f"{module}.{part}", our_name, role, shape)


def _layer_tensors(spec: ModelSpec, names: Names, layer: int) -> Iterator[GGUFTensor]:
    rows = names.family.gguf
    assert rows is not None
    attention = spec.layers[layer].attention
    paired = {"q": attention.num_heads, "k": attention.num_kv_heads} if rows.is_paired else {}
    shapes = spec.linear_shapes(layer)
    for role, (_, num_columns) in shapes.items():
        parts = {one: shapes[one][0] for one in names.fused(role)}
        if role != next(iter(parts)) or expert_index(role):
            continue
        if expert_index(role) == 0:
            yield _experts(spec, names, layer, role)
            continue
        yield GGUFTensor(
            name=f"blk.{layer}.{rows.linears[role]}.weight",
            our_name=f"{names.linear(role, layer)}.weight",
            role=role,
            layer=layer,
            shape=(sum(parts.values()), num_columns),
            paired_heads=paired.get(role, 0),
            parts=parts,
            num_blocks=names.num_blocks(role, spec.layers[layer]),
        )
    for role, shape in spec.router_shapes(layer).items():
        yield GGUFTensor(
            name=f"blk.{layer}.{rows.linears[role]}.weight",
            our_name=f"{names.router(role, layer)}.weight",
            role=role,
            layer=layer,
            shape=shape,
        )
    for role, size in layer_vectors(spec, layer).items():
        owner = role.rsplit(".", 1)[0]
        parts = {}
        if owner in shapes:
            parts = {one: shapes[one][0] for one in names.fused(owner)}
            if owner != next(iter(parts)):
                continue
        name = rows.linears[owner] if owner in rows.linears else rows.norms[owner]
        yield GGUFTensor(
            name=f"blk.{layer}.{_suffixed(name, role)}",
            our_name=vector_tensor(names, role, layer),
            role=role,
            layer=layer,
            shape=(sum(parts.values()) or size,),
            paired_heads=paired.get(owner, 0),
            parts=parts,
            num_blocks=names.num_blocks(owner, spec.layers[layer]) if parts else 1,
            offset=0.0 if owner in rows.linears else _norm_offset(names, role),
        )


def _experts(spec: ModelSpec, names: Names, layer: int, role: str) -> GGUFTensor:
    """Returns the tensor with all experts' linear layers of one kind; `role` is that of the first
    expert."""
    rows = names.family.gguf
    assert rows is not None
    shapes, kind = spec.linear_shapes(layer), role_kind(role)
    roles = [one for one in shapes if role_kind(one) == kind]
    return GGUFTensor(
        name=f"blk.{layer}.{rows.linears[kind]}.weight",
        our_name=f"{names.linear(role, layer)}.weight",
        role=role,
        layer=layer,
        shape=(len(roles), *shapes[role]),
        parts={one: shapes[one][0] for one in roles},
        experts=tuple(f"{names.linear(one, layer)}.weight" for one in roles),
    )


def _norm_offset(names: Names, role: str) -> float:
    rows = names.family.gguf
    assert rows is not None
    return rows.norm_offset if role.endswith(".weight") else 0.0


def _suffixed(name: str, role: str) -> str:
    return f"{name}.{role.rsplit('.', 1)[1]}"
