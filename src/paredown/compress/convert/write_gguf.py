"""Writes a checkpoint as one GGUF file, for llama.cpp and all that is built on it.

As it is: floats stay what they are, int4 codes in symmetric groups of 32 become Q4_0 and int8 ones
Q8_0, code for code. Or, a float checkpoint, in other formats, quantized as llama.cpp does it. Norms
and biases are F32, which llama.cpp asks for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paredown.compress.size import checkpoint_bits_per_weight
from paredown.errors import OutputError, UnsupportedError, naming
from paredown.formats.gguf import q4_0, q8_0
from paredown.formats.gguf.block_format import BlockFormat, Bytes
from paredown.formats.gguf.floats import BF16, F16, F32
from paredown.formats.gguf.table import BLOCK_FORMATS, encode, exact_format
from paredown.formats.grid_weight import float_weight
from paredown.formats.weight import CoreWeight
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.header import NewTensor
from paredown.models.gguf.metadata import factors_of, metadata_from_spec
from paredown.models.gguf.names import (
    OUTPUT,
    ROPE_FACTORS,
    GGUFTensor,
    gguf_tensors,
    pair_rows,
)
from paredown.models.gguf.vocabulary import GGUFVocabulary, read_vocabulary
from paredown.progress import OnProgress

# Values converted at once: bounds the float temporaries to some tens of megabytes.
_CHUNK_VALUES = 1 << 22
_QUANTIZATION_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class GGUFFormats:
    """The formats of the linear layers, the output layer and the table of embeddings. Tied
    embeddings are written once where the last two are the same, else as two tensors."""

    linear: BlockFormat
    output: BlockFormat
    embedding: BlockFormat


def _formats(linear: BlockFormat, tables: BlockFormat) -> GGUFFormats:
    return GGUFFormats(linear=linear, output=tables, embedding=tables)


# By the name of the recipe. As in llama.cpp's own files of Q4_0, the output layer and embedding get
# more bits than the rest; llama.cpp takes Q6_K, of what is written here Q8_0 is the next.
GGUF_FORMATS: dict[str, GGUFFormats] = {
    "gguf-f16": _formats(F16, F16),
    "gguf-bf16": _formats(BF16, BF16),
    "gguf-q8_0": _formats(q8_0.FORMAT, q8_0.FORMAT),
    "gguf-q4_0": _formats(q4_0.FORMAT, q8_0.FORMAT),
}


@dataclass(frozen=True, kw_only=True)
class WriteGGUFResult:
    """`formats`  how many tensors have each format
    `clamped`  values beyond the range of F16 that became its largest, by tensor
    `notes`    what llama.cpp will do otherwise
    """

    path: Path
    file_bytes: int
    bits_per_weight: float
    formats: Mapping[str, int]
    clamped: Mapping[str, int]
    notes: tuple[str, ...]


def write_gguf(
    checkpoint: Checkpoint,
    output: Path,
    on_progress: OnProgress | None = None,
    *,
    formats: GGUFFormats | None = None,
    vocabulary: GGUFVocabulary | None = None,
    overwrite: bool = False,
) -> WriteGGUFResult:
    """Writes the file `output`, which appears whole or not at all. `formats` None keeps every
    weight exactly; `vocabulary` None takes the tokenizer beside the weights.

    Raises UnsupportedError, naming the module, for what GGUF or llama.cpp cannot hold, and for
    `formats` of a checkpoint that is quantized; OutputError when `output` exists and may not be
    replaced, or cannot be written.
    """
    _check_output(output, overwrite)
    if formats is not None and checkpoint.is_quantized:
        raise UnsupportedError(
            "the checkpoint is compressed already",
            seen=str(checkpoint.path),
            remedy="Quantize the original, so that errors do not add up, or write it as it is.",
        )
    metadata = metadata_from_spec(checkpoint.spec)
    if vocabulary is None:
        vocabulary = read_vocabulary(checkpoint.path, checkpoint.spec.vocab_size)
    job = _Job(checkpoint, formats)
    metadata |= {
        "general.name": checkpoint.path.stem,
        "general.file_type": np.uint32(job.file_type),
        "general.quantization_version": np.uint32(_QUANTIZATION_VERSION),
        **vocabulary.metadata,
    }
    report = on_progress or (lambda what, share: None)
    write_gguf_file(output, metadata, [new for _, new in job.tensors], job.rows(report))
    written = Checkpoint.open(output)
    return WriteGGUFResult(
        path=output,
        file_bytes=written.file_bytes,
        bits_per_weight=checkpoint_bits_per_weight(written, checkpoint.spec),
        formats=job.counts(),
        clamped=job.clamped,
        notes=vocabulary.notes,
    )


class _Job:
    """The tensors with their formats, found out before anything is written."""

    def __init__(self, checkpoint: Checkpoint, formats: GGUFFormats | None) -> None:
        self._checkpoint = checkpoint
        self._specs = checkpoint.weight_specs()
        self.clamped: dict[str, int] = {}
        self.tensors = [
            (tensor, NewTensor(name=tensor.name, block=block, shape=tensor.shape))
            for tensor in self._list(formats)
            for block in [self._format(tensor, formats)]
        ]

    @property
    def file_type(self) -> int:
        """llama.cpp's number for the format that most weights of the layers have."""
        blocks = [new.block for tensor, new in self.tensors if tensor.layer is not None]
        known = [block for block in BLOCK_FORMATS.values() if block.file_type is not None]
        most = max(known, key=lambda one: _num_matrices(blocks, one))
        assert most.file_type is not None
        return most.file_type

    def counts(self) -> dict[str, int]:
        names = [new.block.name for _, new in self.tensors]
        return {name: names.count(name) for name in sorted(set(names))}

    def rows(self, on_progress: OnProgress) -> Iterator[Bytes]:
        for done, (tensor, new) in enumerate(self.tensors):
            on_progress("writing", done / len(self.tensors))
            with naming(tensor.our_name):
                yield self._rows(tensor, new.block)
        on_progress("writing", 1.0)

    def _list(self, formats: GGUFFormats | None) -> Iterator[GGUFTensor]:
        spec, names = self._checkpoint.spec, self._checkpoint.names
        for tensor in gguf_tensors(spec, names):
            yield tensor
            if tensor.role == "embedding":
                if spec.output.is_tied and formats and formats.output != formats.embedding:
                    yield replace(tensor, name=OUTPUT, role="output")
                factors = factors_of(spec)
                if factors is not None:
                    yield GGUFTensor(
                        name=ROPE_FACTORS,
                        our_name=ROPE_FACTORS,
                        role="rope",
                        layer=None,
                        shape=factors.shape,
                    )

    def _format(self, tensor: GGUFTensor, formats: GGUFFormats | None) -> BlockFormat:
        if len(tensor.shape) == 1:
            return F32
        if formats is None:
            with naming(tensor.our_name):
                return exact_format(self._specs[tensor.our_name.removesuffix(".weight")])
        by_role = {"embedding": formats.embedding, "output": formats.output}
        block = by_role.get(tensor.role, formats.linear)
        if tensor.shape[1] % block.block_columns:
            raise UnsupportedError(
                f"{tensor.our_name}: {block.name} does not fit this weight",
                seen=f"{tensor.shape[1]} columns in blocks of {block.block_columns}",
                remedy="Use gguf-bf16 or gguf-f16.",
            )
        return block

    def _rows(self, tensor: GGUFTensor, block: BlockFormat) -> Bytes:
        """[rows, bytes] as they lie in the file."""
        if len(tensor.shape) == 1:
            rows_OB = self._vector(tensor).view(np.uint8).reshape(tensor.shape[0], -1)
        else:
            rows_OB = self._convert(tensor, self._weight(tensor), block)
        return pair_rows(rows_OB, tensor.paired_heads) if tensor.paired_heads else rows_OB

    def _vector(self, tensor: GGUFTensor) -> np.ndarray:
        if tensor.role == "rope":
            values = factors_of(self._checkpoint.spec)
        else:
            values = self._checkpoint.vector(tensor.role, tensor.layer)
        assert values is not None, tensor.name
        return np.ascontiguousarray(values, np.float32) + np.float32(tensor.offset)

    def _weight(self, tensor: GGUFTensor) -> CoreWeight:
        if tensor.layer is not None:
            return self._checkpoint.linear(tensor.role, tensor.layer)
        if tensor.role == "output":
            return self._checkpoint.output()
        return self._checkpoint.embedding()

    def _convert(self, tensor: GGUFTensor, weight: CoreWeight, block: BlockFormat) -> Bytes:
        """Some rows at a time."""
        if not weight.spec.is_quantized and weight.spec == block.spec:
            return encode(weight)[1]
        if weight.spec.is_quantized:
            found, rows_OB = encode(weight)
            assert found is block
            return rows_OB
        num_rows, num_columns = weight.shape
        chunk_rows = max(1, _CHUNK_VALUES // num_columns)
        parts = []
        for start in range(0, num_rows, chunk_rows):
            values_OI = weight.rows(slice(start, start + chunk_rows)).dequantize()
            parts.append(encode(self._quantize(tensor, values_OI, block))[1])
        return np.concatenate(parts)

    def _quantize(
        self, tensor: GGUFTensor, values_OI: np.ndarray, block: BlockFormat
    ) -> CoreWeight:
        if block.quantize is not None:
            return block.quantize(values_OI)
        assert block.spec.dtype in ("fp32", "fp16", "bf16")
        weight, num_clamped = float_weight(values_OI, block.spec.dtype)
        if num_clamped:
            self.clamped[tensor.our_name] = self.clamped.get(tensor.our_name, 0) + num_clamped
        return weight


def _check_output(output: Path, overwrite: bool) -> None:
    if output.exists() and (output.is_dir() or not overwrite):
        raise OutputError(
            f"the output {output} exists already",
            seen="a folder" if output.is_dir() else "a file",
            remedy="Choose another name, or remove it.",
        )


def _num_matrices(blocks: list[BlockFormat], block: BlockFormat) -> int:
    """F32 is every vector's too, so it counts last."""
    return -1 if block is F32 and set(blocks) != {F32} else blocks.count(block)
