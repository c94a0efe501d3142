"""GPTQ checkpoints as AutoGPTQ and GPTQModel write them (https://github.com/ModelCloud/GPTQModel).

A module has these tensors, with b bits a code (2, 3, 4 or 8):
    qweight  I32 [I * b / 32, O]   unsigned codes packed down the rows, low bits first
    qzeros   I32 [G, O * b / 32]   zero points packed along the row; version 1 holds them minus 1
    scales   F16 [G, O]
    g_idx    I32 [I]               the group of each column; may be missing where it counts up

3-bit codes straddle words, as in formats/bits.py. Version 1 cannot hold a zero point of 0, and
tools disagree on a field of all ones. It is read as GPTQModel writes it, which subtracts 1 from
all fields of a word at once, with borrows (3 bits: field by field), and noted; we do not write it.
The section of config.json repeats quantize_config.json.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.bits import pack_bits, unpack_bits
from paredown.formats.grid_weight import GridWeight
from paredown.formats.module_pattern import ModulePatterns
from paredown.formats.stored.column_order import settle_order
from paredown.formats.stored.half_scales import half_scales
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.section import (
    check_any_codes,
    check_patterns,
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
from paredown.spec.weight import WeightDType, WeightSpec

Version = Literal[1, 2]
GPTQ_DTYPES: dict[int, WeightDType] = {2: "int2", 3: "int3", 4: "int4", 8: "int8"}

CODES = "qweight"
ZEROS = "qzeros"
SCALES = "scales"
ORDER = "g_idx"
_WORD_BITS = 32
WRAPPED = (
    "zero points of 0 wrapped around in GPTQ's first version, which tools read differently; they "
    "are read as GPTQModel writes them"
)
METHOD = "gptq"
FILE_NAME = "quantize_config.json"
VERSIONS: dict[str, Version] = {"gptq": 1, "gptq_v2": 2}
_FORMAT_OF = {version: name for name, version in VERSIONS.items()}
_READ = {"quant_method", "bits", "group_size", "sym", "desc_act", "checkpoint_format", "format"}
_READ |= {"method", "pack_dtype", "dynamic", "lm_head"}
_OVERRIDES = {"bits", "group_size", "sym", "desc_act"}


@dataclass(frozen=True, kw_only=True)
class GPTQForm:
    """The stored form of one module (formats/stored/stored_form.py)."""

    spec: WeightSpec
    version: Version
    has_order: bool = True
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (CODES, ZEROS, SCALES, *([ORDER] if self.has_order else []))

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        num_rows, num_columns = shape
        bits = self.spec.bits
        check_words(shape, bits)
        num_groups = -(-num_columns // (self.spec.group_size or num_columns))
        shapes: dict[str, tuple[int, ...]] = {
            CODES: (num_columns * bits // _WORD_BITS, num_rows),
            ZEROS: (num_groups, num_rows * bits // _WORD_BITS),
            SCALES: (num_groups, num_rows),
        }
        if self.has_order:
            shapes[ORDER] = (num_columns,)
        return shapes

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> StoredForm:
        noted = replace(self, notes=(WRAPPED,)) if self._wraps(tensors, shape) else self
        form: StoredForm = noted
        size = self.spec.group_size
        if self.has_order:
            form = settle_order(
                noted, tensors, suffix=ORDER, scale_suffix=SCALES, num_columns=shape[1]
            )
        if form is noted and size is not None and shape[1] % size:
            raise bad_tensor(SCALES, f"has groups of {size} columns", f"{shape[1]} columns")
        return form

    def _wraps(self, tensors: Tensors, shape: tuple[int, int]) -> bool:
        if self.version == 2 or self.spec.symmetric:
            return False
        words_GW = take_words(tensors, ZEROS, self.tensor_shapes(shape)[ZEROS])
        fields_GO = unpack_bits(np.ascontiguousarray(words_GW), self.spec.bits, shape[0])
        return bool((fields_GO == (1 << self.spec.bits) - 1).any())

    def decode(self, tensors: Tensors) -> GridWeight:
        words = present(tensors, CODES).array
        if words.ndim != 2 or words.size == 0:
            raise bad_tensor(CODES, "does not have the shape of a weight", list(words.shape))
        bits = self.spec.bits
        shape = (words.shape[1], words.shape[0] * _WORD_BITS // bits)
        shapes = self.tensor_shapes(shape)
        words_WO = take_words(tensors, CODES, shapes[CODES])
        scales_GO, scale_dtype = take_scales(tensors, SCALES, shapes[SCALES])
        zeros_GO = _read_zeros(
            take_words(tensors, ZEROS, shapes[ZEROS]), bits, shape[0], self.version
        )
        half = 1 << (bits - 1)
        if self.spec.symmetric and not (zeros_GO == half).all():
            seen = f"{zeros_GO.min()} to {zeros_GO.max()}"
            raise bad_tensor(ZEROS, f"is not {half} throughout, though sym is true", seen)
        zeros_OG = None if self.spec.symmetric else np.ascontiguousarray(zeros_GO.T)
        return GridWeight(
            spec=self.spec,
            values_OI=unpack_bits(np.ascontiguousarray(words_WO.T), bits, shape[1]),
            scales_OG=np.ascontiguousarray(scales_GO.T),
            zero_points_OG=zeros_OG,
            scale_dtype=scale_dtype,
        )


def check_spec(spec: WeightSpec, shape: tuple[int, int]) -> None:
    """Raises UnsupportedError for a weight that this format cannot hold."""
    plain = WeightSpec(dtype=spec.dtype, group_size=spec.group_size, symmetric=spec.symmetric)
    if spec.dtype not in GPTQ_DTYPES.values() or spec != plain:
        raise UnsupportedError(
            "GPTQ holds integers of 2, 3, 4 and 8 bits, for inputs as they are",
            seen=spec.name,
            remedy="Convert to compressed-tensors or to a float format.",
        )
    try:
        check_words(shape, spec.bits)
    except CheckpointError as error:
        remedy = "Convert to compressed-tensors."
        raise UnsupportedError(error.what, seen=error.seen, remedy=remedy) from error


def encode_gptq(weight: GridWeight, version: Version) -> dict[str, StoredTensor]:
    """Returns a weight's tensors, by suffix. Raises UnsupportedError for scales that are not fp16
    numbers, and in version 1 for a zero point of 0."""
    spec = weight.spec
    check_spec(spec, weight.shape)
    bits, num_columns = spec.bits, weight.shape[1]
    scales_OG = half_scales(weight)
    zeros_OG = weight.zero_points_OG
    if zeros_OG is None:
        zeros_OG = np.full(scales_OG.shape, 1 << (bits - 1), np.uint8)
    if version == 1:
        if not zeros_OG.all():
            raise UnsupportedError(
                "a zero point of 0 has no place in GPTQ's first version",
                seen=f"{int(np.count_nonzero(zeros_OG == 0))} of them",
                remedy="Convert to gptq-v2.",
            )
        zeros_OG = zeros_OG - np.uint8(1)
    codes_OI = cast("npt.NDArray[np.uint8]", weight.values_OI)
    groups_I = np.arange(num_columns) // (spec.group_size or num_columns)
    return {
        CODES: _words(np.ascontiguousarray(pack_bits(codes_OI, bits).T)),
        ZEROS: _words(pack_bits(np.ascontiguousarray(zeros_OG.T), bits)),
        SCALES: StoredTensor(dtype="F16", array=np.ascontiguousarray(scales_OG.T)),
        ORDER: _words(groups_I.astype(np.int32)),
    }


def check_words(shape: tuple[int, int], bits: int) -> None:
    """Raises CheckpointError if codes do not fill whole words in both directions."""
    if shape[0] * bits % _WORD_BITS or shape[1] * bits % _WORD_BITS:
        raise CheckpointError(
            "GPTQ packs codes into whole words, which they do not fill",
            seen=f"{shape[0]} x {shape[1]} codes of {bits} bits",
            remedy="Use the config.json that belongs to these weights.",
        )


def _read_zeros(
    words_GW: npt.NDArray[np.int32], bits: int, num_rows: int, version: Version
) -> npt.NDArray[np.uint8]:
    if version == 1 and _WORD_BITS % bits == 0:
        ones = sum(1 << shift for shift in range(0, _WORD_BITS, bits))
        words_GW = (words_GW.view(np.uint32) + np.uint32(ones)).view(np.int32)
    zeros_GO = unpack_bits(np.ascontiguousarray(words_GW), bits, num_rows)
    if version == 1 and _WORD_BITS % bits:
        zeros_GO = (zeros_GO + np.uint8(1)) & np.uint8((1 << bits) - 1)
    return zeros_GO


def _words(array: npt.NDArray[np.int32]) -> StoredTensor:
    return StoredTensor(dtype="I32", array=array)


@dataclass(frozen=True, kw_only=True)
class GPTQRule:
    """`form` applies to modules whose names the pattern matches from their beginning; None means
    floats."""

    pattern: str
    form: WeightSpec | None


@dataclass(frozen=True, kw_only=True)
class GPTQConfig:
    """Tells which linear modules are quantized, and how (formats/stored/stored_form.py): those
    with codes in the files, in the form of the first rule that matches, else of `spec`."""

    kv: ClassVar[KVScheme] = NO_SCHEME

    spec: WeightSpec
    version: Version
    rules: tuple[GPTQRule, ...]
    tensor_names: Collection[str]
    notes: tuple[str, ...] = ()

    @cached_property
    def _patterns(self) -> ModulePatterns:
        return ModulePatterns([rule.pattern for rule in self.rules], "match")

    def form_for_embedding(self, module: str) -> None:
        return None

    def form_for(self, module: str) -> GPTQForm | None:
        if f"{module}.{CODES}" not in self.tensor_names:
            return None
        place = self._patterns.first(module)
        spec = self.spec if place is None else self.rules[place].form
        if spec is None:
            return None
        has_order = f"{module}.{ORDER}" in self.tensor_names
        return GPTQForm(spec=spec, version=self.version, has_order=has_order)


def read_gptq(config: Mapping[str, object], tensor_names: Collection[str]) -> GPTQConfig:
    """Parses the section. Raises UnsupportedError or CheckpointError for anything that cannot be
    read as intended."""
    unknown = pass_over_others(config, _READ)
    check_same_method(config, METHOD)
    named = config.get("checkpoint_format", config.get("format", "gptq"))
    if not isinstance(named, str) or named not in VERSIONS:
        raise unsupported("checkpoint_format", named, f"Known are {', '.join(VERSIONS)}.")
    if config.get("pack_dtype", "int32") not in ("int32", "torch.int32"):
        raise unsupported("pack_dtype", config["pack_dtype"], "Known is int32.")
    flag(config, "desc_act", False)
    check_any_codes(tensor_names, CODES, METHOD)
    dynamic = config.get("dynamic") or {}
    if not isinstance(dynamic, dict):
        raise damaged("dynamic", dynamic)
    check_patterns("dynamic", [_pattern(str(name)) for name in dynamic], "match")
    for name, own in dynamic.items():
        if isinstance(own, dict):
            unknown += pass_over_others(own, _OVERRIDES, f"dynamic.{name}.")
    return GPTQConfig(
        spec=parse_spec(config),
        version=VERSIONS[named],
        rules=tuple(_parse_rule(str(name), own, config) for name, own in dynamic.items()),
        tensor_names=tensor_names,
        notes=note_passed_over(unknown),
    )


def write_gptq(layout: Layout[WeightSpec], version: Version) -> dict[str, object]:
    """Builds the section of config.json: the commonest form applies to all modules, others are
    named."""
    specs, output = layout.specs, layout.output
    base = Counter(specs.values()).most_common(1)[0][0]
    dynamic: dict[str, object] = {
        f"-:^{re.escape(module)}$": {} for module in layout.all_floats if module != output
    }
    dynamic |= {
        f"+:^{re.escape(module)}$": _fields(spec) for module, spec in specs.items() if spec != base
    }
    return {
        "quant_method": METHOD,
        **_fields(base),
        "desc_act": False,
        "lm_head": output in specs,
        "checkpoint_format": _FORMAT_OF[version],
        "pack_dtype": "int32",
        "meta": {"quantizer": ["paredown"]},
        **({"dynamic": dynamic} if dynamic else {}),
    }


def _fields(spec: WeightSpec) -> dict[str, object]:
    group_size = -1 if spec.group_size is None else spec.group_size
    return {"bits": spec.bits, "group_size": group_size, "sym": spec.symmetric}


def parse_spec(config: Mapping[str, object]) -> WeightSpec:
    """Reads the spec. Raises UnsupportedError or CheckpointError for bits or group sizes that the
    format does not have."""
    bits = whole_number(config, "bits", 4)
    if bits not in GPTQ_DTYPES:
        raise unsupported("bits", bits, f"Known are {', '.join(map(str, GPTQ_DTYPES))}.")
    group_size = whole_number(config, "group_size", 128)
    if group_size == 0 or group_size < -1:
        raise damaged("group_size", group_size)
    return WeightSpec(
        dtype=GPTQ_DTYPES[bits],
        group_size=None if group_size == -1 else group_size,
        symmetric=flag(config, "sym", True),
    )


def _parse_rule(name: str, own: object, config: Mapping[str, object]) -> GPTQRule:
    """Parses a rule, whose name is a regular expression after "-:" (not quantized), "+:" or
    nothing (overrides)."""
    where = f"dynamic.{name}"
    pattern = _pattern(name)
    if name.startswith("-:"):
        return GPTQRule(pattern=pattern, form=None)
    if not isinstance(own, dict):
        raise damaged(where, own)
    return GPTQRule(pattern=pattern, form=parse_spec({**config, **own}))


def _pattern(name: str) -> str:
    return name.removeprefix("+:").removeprefix("-:")


def _format(version: Version) -> StoredFormat[WeightSpec, GridWeight]:
    return StoredFormat(
        method=METHOD,
        holds=WeightSpec,
        read=read_gptq,
        check=check_spec,
        encode=partial(encode_gptq, version=version),
        section=partial(write_gptq, version=version),
        file=FILE_NAME,
    )


FORMAT = _format(1)
FORMAT_V2 = _format(2)
