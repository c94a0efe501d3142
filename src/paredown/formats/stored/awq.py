"""AWQ checkpoints as AutoAWQ writes them, version "gemm" (https://github.com/casper-hansen/AutoAWQ).

A module's tensors, 4 bits a code:
    qweight  I32 [I, O / 8]   unsigned codes, eight neighbouring output rows to a word
    qzeros   I32 [G, O / 8]   zero points, packed alike
    scales   F16 [G, O]

The nibbles of a word, low bits first, belong to rows 0, 2, 4, 6, 1, 3, 5, 7 of its eight.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.bits import pack_bits, unpack_bits
from paredown.formats.grid_weight import GridWeight
from paredown.formats.stored.half_scales import half_scales
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.section import (
    CHANGING,
    check_any_codes,
    check_same_method,
    damaged,
    flag,
    note_passed_over,
    pass_over_others,
    unsupported,
    whole_number,
)
from paredown.formats.stored.stored_form import StoredForm
from paredown.formats.stored.stored_format import Layout, StoredFormat
from paredown.formats.stored.tensor_checks import (
    Tensors,
    bad_tensor,
    present,
    take_scales,
    take_words,
)
from paredown.formats.tensor import StoredTensor
from paredown.spec.weight import WeightSpec

CODES = "qweight"
ZEROS = "qzeros"
SCALES = "scales"
BITS = 4
_PER_WORD = 8
# The row of each nibble, and the nibble of each row.
_ROWS = np.array([0, 2, 4, 6, 1, 3, 5, 7])
_NIBBLES = np.argsort(_ROWS)
METHOD = "awq"
VERSION = "gemm"
_READ = {"quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version"}
_READ |= {"method", "format", "modules_to_not_convert", "backend"}
# GPTQModel repeats GPTQ's fields here; they say nothing about these tensors.
_READ |= {"desc_act", "sym", "pack_dtype", "checkpoint_format", "lm_head"}
_BACKENDS = (None, "autoawq", "auto", "gemm")


@dataclass(frozen=True, kw_only=True)
class AWQForm:
    """The stored form of one module (formats/stored/stored_form.py)."""

    spec: WeightSpec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        return CODES, ZEROS, SCALES

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        num_rows, num_columns = shape
        size = self.spec.group_size or num_columns
        if num_rows % _PER_WORD or num_columns % size:
            raise CheckpointError(
                "AWQ packs eight output rows to a word, and its groups divide the columns",
                seen=f"{num_rows} rows, {num_columns} columns in groups of {size}",
                remedy="Use the config.json that belongs to these weights.",
            )
        num_groups = num_columns // size
        return {
            CODES: (num_columns, num_rows // _PER_WORD),
            ZEROS: (num_groups, num_rows // _PER_WORD),
            SCALES: (num_groups, num_rows),
        }

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> StoredForm:
        if self.spec.symmetric:
            self._read_zeros(tensors, self.tensor_shapes(shape)[ZEROS])
        return self

    def decode(self, tensors: Tensors) -> GridWeight:
        words = present(tensors, CODES).array
        if words.ndim != 2 or words.size == 0:
            raise bad_tensor(CODES, "does not have the shape of a weight", list(words.shape))
        shapes = self.tensor_shapes((words.shape[1] * _PER_WORD, words.shape[0]))
        codes_IO = _unpack(take_words(tensors, CODES, shapes[CODES]))
        zeros_GO = self._read_zeros(tensors, shapes[ZEROS])
        scales_GO, scale_dtype = take_scales(tensors, SCALES, shapes[SCALES])
        return GridWeight(
            spec=self.spec,
            values_OI=np.ascontiguousarray(codes_IO.T),
            scales_OG=np.ascontiguousarray(scales_GO.T),
            zero_points_OG=None if self.spec.symmetric else np.ascontiguousarray(zeros_GO.T),
            scale_dtype=scale_dtype,
        )

    def _read_zeros(self, tensors: Tensors, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        zeros_GO = _unpack(take_words(tensors, ZEROS, shape))
        half = 1 << (BITS - 1)
        if self.spec.symmetric and not (zeros_GO == half).all():
            seen = f"{zeros_GO.min()} to {zeros_GO.max()}"
            problem = f"is not {half} throughout, though zero_point is false"
            raise bad_tensor(ZEROS, problem, seen)
        return zeros_GO


def check_spec(spec: WeightSpec, shape: tuple[int, int]) -> None:
    """Raises UnsupportedError for a weight that this format cannot hold. A symmetric weight has
    zero points of 8."""
    plain = WeightSpec(dtype=spec.dtype, group_size=spec.group_size, symmetric=spec.symmetric)
    if spec.dtype != "int4" or spec != plain:
        raise UnsupportedError(
            "AWQ holds integers of 4 bits, for inputs as they are",
            seen=spec.name,
            remedy="Convert to compressed-tensors or to a float format.",
        )
    if shape[0] % _PER_WORD:
        raise UnsupportedError(
            "AWQ packs eight output rows to a word",
            seen=f"{shape[0]} rows",
            remedy="Convert to compressed-tensors.",
        )


def encode_awq(weight: GridWeight) -> dict[str, StoredTensor]:
    """Returns a weight's tensors, by suffix. Raises UnsupportedError for scales that are not fp16
    numbers."""
    check_spec(weight.spec, weight.shape)
    scales_OG = half_scales(weight)
    zeros_OG = weight.zero_points_OG
    if zeros_OG is None:
        zeros_OG = np.full(scales_OG.shape, 1 << (BITS - 1), np.uint8)
    codes_OI = cast("npt.NDArray[np.uint8]", weight.values_OI)
    return {
        CODES: _pack(np.ascontiguousarray(codes_OI.T)),
        ZEROS: _pack(np.ascontiguousarray(zeros_OG.T)),
        SCALES: StoredTensor(dtype="F16", array=np.ascontiguousarray(scales_OG.T)),
    }


def _pack(codes_RO: npt.NDArray[np.uint8]) -> StoredTensor:
    num_rows, size = codes_RO.shape
    ordered = codes_RO.reshape(num_rows, -1, _PER_WORD)[:, :, _ROWS].reshape(num_rows, size)
    return StoredTensor(dtype="I32", array=pack_bits(ordered, BITS))


def _unpack(words_RW: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    num_rows, num_words = words_RW.shape
    ordered = unpack_bits(words_RW, BITS, num_words * _PER_WORD)
    codes = ordered.reshape(num_rows, num_words, _PER_WORD)[:, :, _NIBBLES]
    return codes.reshape(num_rows, num_words * _PER_WORD)


@dataclass(frozen=True, kw_only=True)
class AWQConfig:
    """Tells which linear modules are quantized (formats/stored/stored_form.py): those with codes
    in the files."""

    kv: ClassVar[KVScheme] = NO_SCHEME

    spec: WeightSpec
    tensor_names: Collection[str]
    notes: tuple[str, ...] = ()

    def form_for_embedding(self, module: str) -> None:
        return None

    def form_for(self, module: str) -> AWQForm | None:
        return AWQForm(spec=self.spec) if f"{module}.{CODES}" in self.tensor_names else None


def read_awq(config: Mapping[str, object], tensor_names: Collection[str]) -> AWQConfig:
    """Parses the section. Raises UnsupportedError or CheckpointError for anything that cannot be
    read as intended."""
    unknown = pass_over_others(config, _READ, changing=CHANGING | {"dynamic"})
    check_same_method(config, METHOD)
    version = str(config.get("version", config.get("format", VERSION))).lower()
    if version != VERSION:
        raise unsupported("version", version, f"Known is {VERSION}.")
    if config.get("backend") not in _BACKENDS:
        raise unsupported("backend", config["backend"])
    check_any_codes(tensor_names, CODES, METHOD)
    bits = whole_number(config, "w_bit" if "w_bit" in config else "bits", BITS)
    if bits != BITS:
        raise unsupported("bits", bits, f"Known is {BITS}.")
    size = whole_number(config, "q_group_size" if "q_group_size" in config else "group_size", 128)
    if size == 0 or size < -1:
        raise damaged("group_size", size)
    group_size = None if size == -1 else size
    symmetric = not flag(config, "zero_point", True)
    spec = WeightSpec(dtype="int4", group_size=group_size, symmetric=symmetric)
    return AWQConfig(spec=spec, tensor_names=tensor_names, notes=note_passed_over(unknown))


def write_awq(layout: Layout[WeightSpec]) -> dict[str, object]:
    """Builds the section of config.json. Raises UnsupportedError for a layout that it cannot
    express."""
    specs, output = layout.specs, layout.output
    sizes = {spec.group_size for spec in specs.values()}
    if len(sizes) > 1 or output in specs:
        raise UnsupportedError(
            "AWQ knows one group size for a model and leaves its output layer in floats",
            seen=", ".join(sorted({spec.name for spec in specs.values()}))
            + (f"; {output} quantized" if output in specs else ""),
            remedy="Convert to compressed-tensors or gptq.",
        )
    size = sizes.pop()
    kept = [module for module in layout.all_floats if module != output]
    return {
        "quant_method": METHOD,
        "bits": BITS,
        "group_size": -1 if size is None else size,
        "zero_point": True,
        "version": VERSION,
        "modules_to_not_convert": kept or None,
    }


FORMAT = StoredFormat(
    method=METHOD,
    holds=WeightSpec,
    read=read_awq,
    check=check_spec,
    encode=encode_awq,
    section=write_awq,
)
