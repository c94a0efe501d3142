"""Writes a trained quantized decoder: the folder that it began from, with other numbers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paredown.distill.quantized.quantized_decoder import quantized_modules
from paredown.formats.floating import cast
from paredown.formats.grid_weight import GridWeight
from paredown.formats.stored.table import stored_tensors
from paredown.formats.tensor import STORED_DTYPES, StoredTensor
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import decoder_tensors
from paredown.models.files.folder_files import copy_files, write_config
from paredown.models.files.output_folder import output_folder
from paredown.models.files.shard_writer import write_shards
from paredown.models.fused_rows import fused_rows
from paredown.models.roles import linear_roles


@dataclass(frozen=True, kw_only=True)
class WrittenCodes:
    """`moved_share` is the share of the codes that are not those at the beginning; `clamped` counts
    by tensor the floats that were out of the range of their dtype."""

    moved_share: float
    clamped: Mapping[str, int]


def write_quantized(
    decoder: Decoder,
    start: Checkpoint,
    output: Path,
    *,
    overwrite: bool = False,
    finish: Callable[[Path, WrittenCodes], None] | None = None,
) -> WrittenCodes:
    """Writes the folder `output`, which appears whole or not at all; `finish` sees it before, with
    the result. `decoder` is what `quantized_decoder` made of `start`, and has been trained since.
    Raises OutputError, and CheckpointError for weights that are not finite."""
    weights = _weights(decoder, start)
    clamped: dict[str, int] = {}
    with output_folder(output, overwrite) as folder:
        copy_files(start.path, folder)
        write_shards(folder, _tensors(decoder, start, weights, clamped))
        write_config(folder, dict(start.config))
        Checkpoint.open(folder)
        written = WrittenCodes(moved_share=_moved_share(weights, start), clamped=clamped)
        if finish is not None:
            finish(folder, written)
    return written


def _weights(decoder: Decoder, start: Checkpoint) -> dict[str, GridWeight]:
    """Returns the trained weights by module of the checkpoint."""
    trained = quantized_modules(decoder)
    found = {}
    for index in range(start.spec.num_layers):
        for module, roles in start.names.modules(linear_roles(start.spec, index), index).items():
            if module in start.forms:
                parts = [trained[f"layers.{index}.{role}"].stored() for role in roles]
                num_blocks = start.names.num_blocks(roles[0], start.spec.layers[index])
                found[module] = _joined(parts, num_blocks)
    return found


def _joined(parts: list[GridWeight], num_blocks: int) -> GridWeight:
    """Returns the weight of a module that holds several roles."""
    if len(parts) == 1:
        return parts[0]
    scales = [part.scales_OG for part in parts if part.scales_OG is not None]
    zeros = [part.zero_points_OG for part in parts if part.zero_points_OG is not None]
    return replace(
        parts[0],
        values_OI=fused_rows([part.values_OI for part in parts], num_blocks),
        scales_OG=fused_rows(scales, num_blocks),
        zero_points_OG=fused_rows(zeros, num_blocks) if zeros else None,
    )


def _tensors(
    decoder: Decoder,
    start: Checkpoint,
    weights: Mapping[str, GridWeight],
    clamped: dict[str, int],
) -> Iterator[tuple[str, StoredTensor]]:
    """Yields the tensors of `start` in their order."""
    floats = _floats(decoder, start)
    written = set[str]()
    for name, tensor in {**start.tensors, **start.kv_scales}.items():
        module = name.rpartition(".")[0]
        if name in floats:
            result = cast(floats[name], STORED_DTYPES[tensor.dtype])
            if result.num_clamped:
                clamped[name] = result.num_clamped
            yield name, result.tensor
        elif module not in weights or name == f"{module}.bias":
            yield name, tensor
        elif module not in written:
            written.add(module)
            for suffix, part in stored_tensors(weights[module]).items():
                yield f"{module}.{suffix}", part


def _floats(decoder: Decoder, start: Checkpoint) -> dict[str, npt.NDArray[np.float32]]:
    """Returns the float tensors of the folder that training may have changed, by name."""
    tables = {f"{name}.weight" for name in (start.names.embedding, start.names.output)}
    return {
        name: values
        for name, values in decoder_tensors(decoder, start, coded=start.forms)
        if name not in tables
    }


def _moved_share(weights: Mapping[str, GridWeight], start: Checkpoint) -> float:
    moved = total = 0
    for module, weight in weights.items():
        before = start.coded(module)
        assert isinstance(before, GridWeight)
        moved += int(np.count_nonzero(before.values_OI != weight.values_OI))
        total += weight.values_OI.size
        start.release()
    return moved / max(1, total)
