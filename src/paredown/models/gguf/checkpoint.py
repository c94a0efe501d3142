"""Opens a GGUF file like the checkpoint it was made from: config, spec, and tensors under our
names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.errors import CheckpointError
from paredown.formats.gguf.block_format import BlockFormat, Bytes
from paredown.formats.tensor import StoredDType, StoredTensor
from paredown.models.config import spec_from_config
from paredown.models.encoder_settings import EncoderSettings
from paredown.models.gguf.config import config_from_metadata, family_of
from paredown.models.gguf.head import find_gguf_head
from paredown.models.gguf.names import (
    ALL_FACTORS,
    ROPE_FACTORS,
    GGUFTensor,
    folder_rows,
    gguf_tensors,
    inside_fused,
    unpair_rows,
)
from paredown.models.gguf.parts import GGUFParts, read_parts
from paredown.models.gguf.tokenizer_notes import tokenizer_notes
from paredown.models.held_notes import block_notes
from paredown.models.names import Names
from paredown.spec.model import ModelSpec
from paredown.spec.roles import QKV_ROLES

SUFFIX = ".gguf"
_FLOATS: dict[str, StoredDType] = {"F32": "F32", "F16": "F16", "BF16": "BF16"}
_REMEDY = "Convert the model to GGUF again, or download the file again."


class GGUFTensors(Mapping[str, StoredTensor]):
    """The model's tensors by our names. Floats are stored as everywhere; blocks are U8, [rows,
    bytes]. Where the file stores rows in pairs, they are put into our order on access."""

    def __init__(self, file: GGUFParts, tensors: list[GGUFTensor]) -> None:
        self._file = file
        self._tensors = {tensor.our_name: tensor for tensor in tensors}

    def __getitem__(self, name: str) -> StoredTensor:
        tensor = self._tensors[name]
        block = self._file.places[tensor.name].block
        rows_OB = self._file.rows(tensor.name)
        if tensor.first_row is not None:
            rows_OB = _own_part(tensor, rows_OB, block)
        if tensor.paired_heads:
            rows_OB = unpair_rows(rows_OB.reshape(tensor.shape[0], -1), tensor.paired_heads)
        if len(tensor.shape) == 2:
            rows_OB = folder_rows(tensor, rows_OB)
        if block.is_quantized:
            return StoredTensor(dtype="U8", array=rows_OB)
        if tensor.offset:
            floats = block.decode(rows_OB).dequantize().reshape(tensor.shape)
            return StoredTensor(dtype="F32", array=floats - np.float32(tensor.offset))
        values = block.decode(rows_OB).arrays()["values"].reshape(tensor.shape)
        if len(tensor.shape) == 1:
            values = folder_rows(tensor, values)
        return StoredTensor(dtype=_FLOATS[block.name], array=values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


@dataclass(frozen=True, kw_only=True)
class GGUFModel:
    """An opened file. `blocks` holds the formats of all tensors by our names; `notes` says what
    runs differently from what the file asks."""

    file: GGUFParts
    config: Mapping[str, object]
    spec: ModelSpec
    names: Names
    tensors: Mapping[str, StoredTensor]
    blocks: Mapping[str, BlockFormat]
    settings: EncoderSettings | None
    notes: tuple[str, ...]


def _own_part(tensor: GGUFTensor, rows_OB: Bytes, block: BlockFormat) -> Bytes:
    """Returns the rows of a tensor that is a part of a stored one; a vector is returned as one
    row."""
    assert tensor.first_row is not None
    size, start = tensor.shape[0], tensor.first_row
    if len(tensor.shape) == 2:
        return rows_OB[start : start + size]
    return rows_OB[:, block.row_bytes(start) : block.row_bytes(start + size)]


def is_gguf(path: Path) -> bool:
    """Returns whether a path names a GGUF file, by its suffix."""
    return path.suffix.lower() == SUFFIX and not path.is_dir()


def open_gguf(path: Path) -> GGUFModel:
    """Maps the file, or all parts of a split one, and checks names, shapes and formats of all
    tensors against the metadata without reading weights. Raises CheckpointError or
    UnsupportedError."""
    file = read_parts(path)
    shapes = {name: place.shape for name, place in file.places.items()}
    factors = {name: _factors(file, name) for name in ALL_FACTORS if name in file.places}
    config = config_from_metadata(file.metadata, shapes, factors, str(path))
    if config["vocab_size"] == 0:
        raise _missing(file, "token_embd.weight")
    spec = spec_from_config(config)
    _check_factors(file, spec, factors)
    family = family_of(file.metadata, str(path))
    found = find_gguf_head(file.metadata, shapes, config, family, spec, str(path))
    spec, head = found.spec, {role: role for role in found.tensors}
    names = Names(family=family, prefix=family.prefixes[0], head=head)
    tensors = _check_tensors(file, spec, names)
    blocks = {tensor.our_name: file.places[tensor.name].block for tensor in tensors}
    return GGUFModel(
        file=file,
        config=config,
        spec=spec,
        names=names,
        tensors=GGUFTensors(file, tensors),
        blocks=blocks,
        settings=found.settings,
        notes=(
            *found.notes,
            *block_notes((place.block, place.shape) for place in file.places.values()),
            *tokenizer_notes(file.metadata),
        ),
    )


def _check_tensors(file: GGUFParts, spec: ModelSpec, names: Names) -> list[GGUFTensor]:
    """Returns the model's tensors; a file that claims endless layers fails at the first missing
    one."""
    found = []
    for tensor in gguf_tensors(spec, names):
        shape = tensor.stored_shape
        if tensor.name not in file.places:
            part = inside_fused(tensor, spec)
            if part is None or part.name not in file.places:
                raise _missing(file, tensor.name)
            shape = (_num_fused_rows(spec, part), *shape[1:])
            tensor = part
        place = file.places[tensor.name]
        if place.shape != shape:
            raise CheckpointError(
                f"{file.path}: tensor {tensor.name!r} has the wrong shape",
                seen=f"{list(place.shape)}, the metadata ask for {list(shape)}",
                remedy=_REMEDY,
            )
        if len(shape) == 1:
            _check_float_vector(file, tensor.name)
        elif not (tensor.is_linear or tensor.is_of_head) and place.block.is_quantized:
            raise CheckpointError(
                f"{file.path}: tensor {tensor.name!r} must be floats",
                seen=place.block.name,
                remedy=_REMEDY,
            )
        found += [tensor.of_expert(index) for index in range(len(tensor.experts))] or [tensor]
    unknown = file.places.keys() - {tensor.name for tensor in found} - {*ALL_FACTORS}
    if unknown:
        raise CheckpointError(
            f"{file.path}: tensor {min(unknown)!r} is not part of the model that the metadata "
            "describe",
            seen=f"{len(unknown)} such tensors",
            remedy=_REMEDY,
        )
    return found


def _num_fused_rows(spec: ModelSpec, part: GGUFTensor) -> int:
    assert part.layer is not None
    shapes = spec.linear_shapes(part.layer)
    return sum(shapes[role][0] for role in QKV_ROLES)


def _check_float_vector(file: GGUFParts, name: str) -> None:
    place = file.places[name]
    if place.block.is_quantized or len(place.shape) != 1:
        raise CheckpointError(
            f"{file.path}: tensor {name!r} must be a vector of floats",
            seen=f"{place.block.name} {list(place.shape)}",
            remedy=_REMEDY,
        )


def _factors(file: GGUFParts, name: str) -> np.ndarray:
    _check_float_vector(file, name)
    values: np.ndarray = file.places[name].block.decode(file.rows(name)).dequantize()[0]
    return values


def _check_factors(file: GGUFParts, spec: ModelSpec, factors: Mapping[str, np.ndarray]) -> None:
    found = factors.get(ROPE_FACTORS)
    if found is not None and 2 * len(found) != spec.layers[0].attention.head_dim:
        raise CheckpointError(
            f"{file.path}: tensor {ROPE_FACTORS!r} has the wrong shape",
            seen=f"{len(found)} factors for heads of {spec.layers[0].attention.head_dim}",
            remedy=_REMEDY,
        )


def _missing(file: GGUFParts, name: str) -> CheckpointError:
    return CheckpointError(
        f"{file.path}: tensor {name!r} is missing",
        seen=f"{len(file.places)} tensors",
        remedy=_REMEDY,
    )
