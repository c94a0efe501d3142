"""Writes a checkpoint as one GGUF file, for llama.cpp and programs built on it.

By default nothing is rounded: floats stay the same, and int4, int5 and int8 codes in symmetric
groups of 32 become Q4_0, Q5_0 and Q8_0. A float checkpoint can also be written in other formats
(gguf_mixture.py), rounded as llama.cpp does, or fitted by the importance of columns. Norms, biases
and routers are F32, as llama.cpp requires.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paredown.compress.convert.gguf_mixture import GGUFFormats
from paredown.compress.importance import Importance
from paredown.compress.size import checkpoint_bits_per_weight
from paredown.errors import OutputError, UnsupportedError, naming
from paredown.formats.gguf.block_format import BlockFormat, Bytes
from paredown.formats.gguf.fitted_rows import FITTED, fitted_rows
from paredown.formats.gguf.floats import F32
from paredown.formats.gguf.table import BLOCK_FORMATS, encode, exact_format
from paredown.formats.grid_weight import float_weight
from paredown.formats.weight import CoreWeight
from paredown.models.check_tensors import head_modules
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.file import write_gguf_file
from paredown.models.gguf.header import NewTensor, Value
from paredown.models.gguf.metadata import factors_of, metadata_from_spec
from paredown.models.gguf.names import (
    OUTPUT,
    TABLES,
    GGUFTensor,
    gguf_tensors,
    pair_rows,
)
from paredown.models.gguf.vocabulary import GGUFVocabulary, read_vocabulary
from paredown.progress import OnProgress
from paredown.shown import shown

# Values converted at once; this limits the temporary floats to some tens of megabytes.
_CHUNK_VALUES = 1 << 22
_QUANTIZATION_VERSION = 2


@dataclass(frozen=True, kw_only=True)
class WriteGGUFResult:
    """`formats`  how many tensors have each format
    `clamped`  values beyond the range of F16 that became its largest, by tensor
    `notes`    what llama.cpp will do differently, and which tensors had no importance
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
    importance: Importance | None = None,
    num_threads: int = 1,
) -> WriteGGUFResult:
    """Writes the file `output`, which appears whole or not at all.

    `formats` None keeps every weight exactly; `vocabulary` None takes the tokenizer beside the
    weights. `importance` is used by formats that are mixtures; `num_threads` is for their fit.

    Raises UnsupportedError, with the module's name, for weights that GGUF or llama.cpp cannot
    hold, and for `formats` of a quantized checkpoint. Raises OutputError if `output` exists and
    may not be replaced, or cannot be written.
    """
    _check_source(checkpoint, output, formats, overwrite)
    metadata = metadata_from_spec(checkpoint.spec)
    if vocabulary is None:
        vocabulary = read_vocabulary(checkpoint.path, checkpoint.spec.vocab_size)
    job = _Job(checkpoint, formats, importance, num_threads)
    metadata |= {
        "general.name": shown(checkpoint.path.stem),
        "general.file_type": np.uint32(job.file_type),
        "general.quantization_version": np.uint32(_QUANTIZATION_VERSION),
        **vocabulary.metadata,
        **_importance_metadata(importance),
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
        notes=(*vocabulary.notes, *job.notes(), *_head_notes(checkpoint)),
    )


def _head_notes(checkpoint: Checkpoint) -> tuple[str, ...]:
    coded = [
        one.name
        for one in head_modules(checkpoint.spec, checkpoint.names)
        if checkpoint.is_coded(one.name)
    ]
    if not coded:
        return ()
    return (f"the codes of the head become floats, as llama.cpp keeps it: {', '.join(coded)}",)


def check_write(checkpoint: Checkpoint, output: Path, formats: GGUFFormats) -> None:
    """Raises what `write_gguf` would, as far as that is known without reading a weight."""
    _check_source(checkpoint, output, formats, overwrite=False)
    metadata_from_spec(checkpoint.spec)
    read_vocabulary(checkpoint.path, checkpoint.spec.vocab_size)
    _Job(checkpoint, formats, None, 1)


class _Job:
    """The tensors with their formats, determined before anything is written."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        formats: GGUFFormats | None,
        importance: Importance | None,
        num_threads: int,
    ) -> None:
        self._checkpoint = checkpoint
        self._formats = formats
        self._importance = importance
        self._num_threads = num_threads
        self._specs = checkpoint.weight_specs()
        self.clamped: dict[str, int] = {}
        self.tensors = [
            (tensor, NewTensor(name=tensor.name, block=block, shape=tensor.stored_shape))
            for tensor in self._list(formats)
            for block in [self._format(tensor, formats)]
        ]
        self._num_values = sum(math.prod(tensor.shape) for tensor, _ in self.tensors)
        self._num_done = 0
        self._report: Callable[[], None] = lambda: None

    @property
    def file_type(self) -> int:
        """llama.cpp's number for the mixture, else for the format of most of the layers'
        weights."""
        if self._formats is not None and self._formats.file_type is not None:
            return self._formats.file_type
        blocks = [new.block for tensor, new in self.tensors if tensor.layer is not None]
        known = [block for block in BLOCK_FORMATS.values() if block.file_type is not None]
        most = max(known, key=lambda one: _num_matrices(blocks, one))
        assert most.file_type is not None
        return most.file_type

    def notes(self) -> tuple[str, ...]:
        """Notes on tensors that were fitted without importance although others had one. A table of
        embeddings that is not the output layer is multiplied with nothing, and has none."""
        if self._importance is None:
            return ()
        modules = self._importance.modules
        missing, unseen = list[str](), list[str]()
        for tensor, new in self.tensors:
            if not self._is_fitted(new.block) or not self._is_multiplied(tensor):
                continue
            for index, module in enumerate(_modules(tensor)):
                found = modules.get(module)
                name = f"{tensor.name} (expert {index})" if tensor.experts else tensor.name
                if found is None:
                    missing.append(name)
                elif found.num_rows == 0:
                    unseen.append(name)
        return self._importance.notes + tuple(
            f"{', '.join(names)}: {what}, so all columns counted alike"
            for names, what in ((missing, "no importance is known"), (unseen, "saw no input"))
            if names
        )

    def counts(self) -> dict[str, int]:
        names = [new.block.name for _, new in self.tensors]
        return {name: names.count(name) for name in sorted(set(names))}

    def rows(self, on_progress: OnProgress) -> Iterator[Bytes]:
        self._report = lambda: on_progress("writing", self._num_done / self._num_values)
        for tensor, new in self.tensors:
            done = self._num_done
            self._report()
            with naming(tensor.our_name):
                yield self._rows(tensor, new.block)
            self._num_done = done + math.prod(tensor.shape)
        self._report()

    def _list(self, formats: GGUFFormats | None) -> Iterator[GGUFTensor]:
        spec, names = self._checkpoint.spec, self._checkpoint.names
        for tensor in gguf_tensors(spec, names):
            yield tensor
            if tensor.role == "embedding":
                if spec.is_tied and formats and formats.unties:
                    yield replace(tensor, name=OUTPUT, role="output")
                for name, factors in factors_of(spec).items():
                    yield GGUFTensor(
                        name=name, our_name=name, role="rope", layer=None, shape=factors.shape
                    )

    def _format(self, tensor: GGUFTensor, formats: GGUFFormats | None) -> BlockFormat:
        if not tensor.is_linear:
            return F32
        if formats is None:
            return self._exact_format(tensor)
        return formats.block(tensor, self._checkpoint.spec)

    def _exact_format(self, tensor: GGUFTensor) -> BlockFormat:
        modules = _modules(tensor)
        for module in modules[1:]:
            if self._specs[module] != self._specs[modules[0]]:
                raise UnsupportedError(
                    f"{module}: GGUF holds all experts of a layer in one format",
                    seen=f"{self._specs[module].name}, and {self._specs[modules[0]].name} before",
                    remedy="Compress all experts alike.",
                )
        with naming(modules[0]):
            return exact_format(self._specs[modules[0]])

    def _rows(self, tensor: GGUFTensor, block: BlockFormat) -> Bytes:
        """Returns the rows [rows, bytes] as in the file."""
        if not tensor.is_linear:
            rows_OB = self._vector(tensor).view(np.uint8).reshape(tensor.shape[0], -1)
        elif tensor.experts:
            assert tensor.layer is not None
            weights = [self._checkpoint.linear(role, tensor.layer) for role in tensor.parts]
            rows_OB = np.concatenate(
                [
                    self._convert(module, weight, block)
                    for module, weight in zip(_modules(tensor), weights, strict=True)
                ]
            )
        else:
            rows_OB = self._convert(_modules(tensor)[0], self._weight(tensor), block)
        return pair_rows(rows_OB, tensor.paired_heads) if tensor.paired_heads else rows_OB

    def _vector(self, tensor: GGUFTensor) -> np.ndarray:
        if tensor.role == "rope":
            return factors_of(self._checkpoint.spec)[tensor.name]
        if tensor.role in TABLES:
            table = self._checkpoint.tensors[tensor.our_name].to_float32()
            return np.ascontiguousarray(table, np.float32)
        if tensor.is_of_head:
            return self._of_head(tensor)
        if len(tensor.shape) == 2:
            assert tensor.layer is not None
            router = self._checkpoint.router(tensor.role, tensor.layer).to_float32()
            return np.ascontiguousarray(router, np.float32)
        roles = [f"{role}.bias" for role in tensor.parts] or [tensor.role]
        parts = [self._checkpoint.vector(role, tensor.layer) for role in roles]
        values = np.concatenate([part for part in parts if part is not None])
        assert values.shape == tensor.shape, tensor.name
        return np.ascontiguousarray(values, np.float32) + np.float32(tensor.offset)

    def _of_head(self, tensor: GGUFTensor) -> np.ndarray:
        step, part = tensor.role.rsplit(".", 1)
        if part == "weight":
            values = self._checkpoint.head_weight(step).dequantize()
        else:
            vector = self._checkpoint.head_vector(tensor.role)
            assert vector is not None
            values = vector
        return np.ascontiguousarray(values, np.float32)

    def _weight(self, tensor: GGUFTensor) -> CoreWeight:
        if tensor.layer is not None:
            parts = [self._checkpoint.linear(role, tensor.layer) for role in tensor.parts]
            return parts[0].stacked(parts[1:])
        if tensor.role == "output":
            return self._checkpoint.output()
        return self._checkpoint.embedding()

    def _convert(self, module: str, weight: CoreWeight, block: BlockFormat) -> Bytes:
        """Converts some rows at a time."""
        if not block.is_quantized and weight.spec == block.spec:
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
            if self._is_fitted(block):
                columns_I = self._column_importance(module)
                parts.append(fitted_rows(block.name, values_OI, columns_I, self._num_threads))
            else:
                parts.append(encode(self._quantize(module, values_OI, block))[1])
            self._num_done += values_OI.size
            self._report()
        return np.concatenate(parts)

    def _is_fitted(self, block: BlockFormat) -> bool:
        return self._formats is not None and self._formats.is_mixture and block.name in FITTED

    def _is_multiplied(self, tensor: GGUFTensor) -> bool:
        return tensor.role != "embedding" or self._checkpoint.spec.is_tied

    def _column_importance(self, module: str) -> np.ndarray | None:
        found = None
        if self._importance is not None:
            found = self._importance.modules.get(module)
        return None if found is None else found.mean_squares()

    def _quantize(self, module: str, values_OI: np.ndarray, block: BlockFormat) -> CoreWeight:
        if block.quantize is not None:
            return block.quantize(values_OI)
        assert block.spec.dtype in ("fp32", "fp16", "bf16")
        weight, num_clamped = float_weight(values_OI, block.spec.dtype)
        if num_clamped:
            name = f"{module}.weight"
            self.clamped[name] = self.clamped.get(name, 0) + num_clamped
        return weight


def _modules(tensor: GGUFTensor) -> list[str]:
    """Returns the linear modules in the tensor; only experts share one."""
    return [name.removesuffix(".weight") for name in tensor.experts or (tensor.our_name,)]


def _importance_metadata(importance: Importance | None) -> dict[str, Value]:
    """Returns the metadata keys that llama.cpp's own quantizer writes."""
    if importance is None:
        return {}
    return {
        "quantize.imatrix.dataset": importance.text,
        "quantize.imatrix.entries_count": np.int32(len(importance.modules)),
        "quantize.imatrix.chunks_count": np.int32(importance.num_windows),
    }


def _check_source(
    checkpoint: Checkpoint, output: Path, formats: GGUFFormats | None, overwrite: bool
) -> None:
    if output.exists() and (output.is_dir() or not overwrite):
        raise OutputError(
            f"the output {output} exists already",
            seen="a folder" if output.is_dir() else "a file",
            remedy="Choose another name, or remove it.",
        )
    if formats is not None and checkpoint.is_quantized:
        raise UnsupportedError(
            "the checkpoint is compressed already",
            seen=str(checkpoint.path),
            remedy="Quantize the original, so that errors do not add up, or write it as it is.",
        )


def _num_matrices(blocks: list[BlockFormat], block: BlockFormat) -> int:
    """Counts the matrices of a format. F32 counts last, since every vector has it too."""
    return -1 if block is F32 and set(blocks) != {F32} else blocks.count(block)
