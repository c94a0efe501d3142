"""Notes on weights that are held in memory in another format than in the files."""

import math
from collections import Counter
from collections.abc import Callable, Iterable

from paredown.formats.gguf.block_format import BlockFormat
from paredown.formats.gguf.table import BLOCK_FORMATS
from paredown.kernels.padded_heads import LANES
from paredown.models.names import Names
from paredown.spec.model import ModelSpec
from paredown.units import format_bytes


def block_notes(tensors: Iterable[tuple[BlockFormat, tuple[int, ...]]]) -> tuple[str, ...]:
    """Returns notes on the GGUF tensors, given by format and shape, whose codes have no kernel: how
    many there are, what they become, and the memory that this takes."""
    counts, values = Counter[str](), Counter[str]()
    for block, shape in tensors:
        if block.note is not None:
            counts[block.name] += 1
            values[block.name] += math.prod(shape)
    return tuple(
        f"{counts[name]} tensors in {name} {block.note}, "
        f"{format_bytes(block.row_bytes(values[name]))} in the file and "
        f"{format_bytes(values[name] * block.held_bits / 8)} in memory"
        for name, block in BLOCK_FORMATS.items()
        if counts[name]
    )


def padded_notes(spec: ModelSpec, names: Names, is_coded: Callable[[str], bool]) -> tuple[str, ...]:
    """Returns a note on quantized output projections whose heads the native core pads. The zeros
    between their columns belong to no group, so such a weight runs in floats."""
    modules = []
    for index, layer in enumerate(spec.layers):
        module = names.linear("o", index)
        if layer.attention.head_dim % LANES and is_coded(module):
            modules.append(module)
    if not modules:
        return ()
    head_dim = spec.layers[0].attention.head_dim
    return (
        f"{len(modules)} quantized output projections run dequantized: their columns are heads of "
        f"{head_dim}, which are padded to whole lanes of {LANES} ({modules[0]}"
        f"{', ...' if len(modules) > 1 else ''})",
    )
