"""AQLM (arXiv 2401.06118): a weight as sums of vectors from codebooks, in the layout of the
authors' inference library and Transformers (https://github.com/Vahe1994/AQLM, inference_lib).

With the letters of `CodebookWeight`, a module has these tensors, after its name and a dot:
    codes      I8 (I16 past 8 bits) [A, J, M]   the code's low bits, two's complement: 200 is -56
    codebooks  F16 [M, K, out_group, in_group]  K = 2^bits vectors, flattened patches
    scales     F16 [A, 1, 1, 1]
A code of fewer than 8 bits also takes a byte. The section of config.json has one form for all
modules.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.formats.codebook_weight import CodebookSpec, CodebookWeight
from paredown.formats.floating import cast
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.section import (
    check_any_codes,
    damaged,
    note_passed_over,
    pass_over_others,
    whole_number,
)
from paredown.formats.stored.stored_format import Layout, StoredFormat
from paredown.formats.stored.tensor_checks import Tensors, bad_tensor, present, take, take_scales
from paredown.formats.tensor import STORED_DTYPES, StoredDType, StoredTensor
from paredown.spec.weight import WeightSpec

CODES = "codes"
CODEBOOKS = "codebooks"
SCALES = "scales"
METHOD = "aqlm"
KEPT = "linear_weights_not_to_quantize"
NOTE = "sums of codebook vectors have no kernel, so the weights run dequantized"
# The fields of CodebookSpec, with the defaults of Transformers.
_DEFAULTS = {
    "in_group_size": 8,
    "out_group_size": 1,
    "num_codebooks": 1,
    "nbits_per_codebook": 16,
}
# The dtype by the bits that a stored code takes.
_CODE_DTYPES: dict[int, StoredDType] = {8: "I8", 16: "I16"}


def tensor_shapes(spec: CodebookSpec, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a weight's tensors by suffix; `shape` is (out, in). Raises
    UnsupportedError if the groups do not divide it."""
    num_out, num_in = spec.num_patches(shape)
    vector = (spec.out_group_size, spec.in_group_size)
    return {
        CODES: (num_out, num_in, spec.num_codebooks),
        CODEBOOKS: (spec.num_codebooks, spec.codebook_size, *vector),
        SCALES: (num_out, 1, 1, 1),
    }


def encode(weight: CodebookWeight) -> dict[str, StoredTensor]:
    """Returns a weight's tensors, by suffix."""
    spec = weight.spec
    code_dtype = _CODE_DTYPES[spec.code_bits]
    shapes = tensor_shapes(spec, weight.shape)
    bits = spec.nbits_per_codebook
    signed_AJM = weight.codes_AJM.astype(np.int32)
    signed_AJM[signed_AJM >= 1 << (bits - 1)] -= 1 << bits
    dtype = np.int8 if code_dtype == "I8" else np.int16
    codes = StoredTensor(dtype=code_dtype, array=signed_AJM.astype(dtype))
    scales = weight.scales_A.reshape(shapes[SCALES])
    return {
        CODES: codes,
        CODEBOOKS: cast(weight.codebooks_MKRC, spec.float_dtype).tensor,
        SCALES: cast(scales, spec.float_dtype).tensor,
    }


def decode(tensors: Tensors, spec: CodebookSpec) -> CodebookWeight:
    """Returns the weight from a module's tensors, by suffix. Raises CheckpointError for missing or
    contradictory tensors."""
    num_out, num_in = _num_patches(tensors)
    shape = (num_out * spec.out_group_size, num_in * spec.in_group_size)
    shapes = tensor_shapes(spec, shape)
    stored = take(tensors, CODES, (_CODE_DTYPES[spec.code_bits],), shapes[CODES]).array.astype(
        np.int32
    )
    half = 1 << (spec.nbits_per_codebook - 1)
    if stored.min() < -half or stored.max() >= half:
        seen = f"{stored.min()} to {stored.max()}"
        problem = f"holds codes that do not have {spec.nbits_per_codebook} bits"
        raise bad_tensor(CODES, problem, seen)
    codebooks, codebook_dtype = take_scales(tensors, CODEBOOKS, shapes[CODEBOOKS])
    scales, float_dtype = take_scales(tensors, SCALES, shapes[SCALES])
    if float_dtype != codebook_dtype:
        raise bad_tensor(SCALES, "has another dtype than the codebooks", float_dtype)
    return CodebookWeight(
        spec=replace(spec, float_dtype=float_dtype),
        codes_AJM=(stored % spec.codebook_size).astype(np.uint16),
        codebooks_MKRC=codebooks,
        scales_A=scales.reshape(-1),
    )


def _num_patches(tensors: Tensors) -> tuple[int, int]:
    """Returns the patches down the rows and along the columns."""
    shape = present(tensors, CODES).shape
    if len(shape) != 3 or 0 in shape:
        raise bad_tensor(CODES, "does not have the shape of codes", list(shape))
    return shape[0], shape[1]


@dataclass(frozen=True, kw_only=True)
class CodebookForm:
    """The stored form of one module (formats/stored/stored_form.py)."""

    codebooks: CodebookSpec

    @property
    def spec(self) -> WeightSpec:
        return WeightSpec(dtype=self.codebooks.float_dtype)

    @property
    def name(self) -> str:
        return self.codebooks.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (CODES, CODEBOOKS, SCALES)

    @property
    def notes(self) -> tuple[str, ...]:
        return (NOTE,)

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        try:
            return tensor_shapes(self.codebooks, shape)
        except UnsupportedError as error:
            raise CheckpointError(error.what, seen=error.seen, remedy=error.remedy) from error

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> "CodebookForm":
        stored = tensors[SCALES].dtype
        if stored not in STORED_DTYPES:
            raise bad_tensor(SCALES, "has the wrong dtype", stored)
        codebooks = replace(self.codebooks, float_dtype=STORED_DTYPES[stored])
        return replace(self, codebooks=codebooks)

    def decode(self, tensors: Tensors) -> CodebookWeight:
        return decode(tensors, self.codebooks)


@dataclass(frozen=True, kw_only=True)
class AQLMConfig:
    """Tells which linear modules are stored in codebooks (formats/stored/stored_form.py): those
    with codes in the files, all in one form."""

    kv: ClassVar[KVScheme] = NO_SCHEME

    form: CodebookForm
    tensor_names: Collection[str]
    notes: tuple[str, ...] = ()

    def form_for_embedding(self, module: str) -> None:
        return None

    def form_for(self, module: str) -> CodebookForm | None:
        return self.form if f"{module}.{CODES}" in self.tensor_names else None


def read_aqlm(config: Mapping[str, object], tensor_names: Collection[str]) -> AQLMConfig:
    """Parses the section. Raises UnsupportedError or CheckpointError for anything that cannot be
    read as intended."""
    unknown = pass_over_others(config, {"quant_method", KEPT, *_DEFAULTS})
    read = {name: whole_number(config, name, default) for name, default in _DEFAULTS.items()}
    try:
        spec = CodebookSpec(
            num_codebooks=read["num_codebooks"],
            nbits_per_codebook=read["nbits_per_codebook"],
            in_group_size=read["in_group_size"],
            out_group_size=read["out_group_size"],
        )
    except ConfigError as error:
        raise damaged("nbits_per_codebook and its like", read) from error
    check_any_codes(tensor_names, CODES, METHOD)
    return AQLMConfig(
        form=CodebookForm(codebooks=spec),
        tensor_names=tensor_names,
        notes=note_passed_over(unknown),
    )


def write_aqlm(layout: Layout[CodebookSpec]) -> dict[str, object]:
    """Builds the section of config.json.

    Transformers uses codebooks for every linear module that the section does not exclude. It
    documents names of tensors ("lm_head.weight"), but 5.23 compares names of modules, so both are
    listed.
    """
    (spec,) = set(layout.specs.values())
    floats = sorted(layout.all_floats)
    return {
        "quant_method": METHOD,
        **{name: getattr(spec, name) for name in _DEFAULTS},
        KEPT: [name for module in floats for name in (module, f"{module}.weight")],
    }


def check_shape(spec: CodebookSpec, shape: tuple[int, int]) -> None:
    """Raises UnsupportedError for a weight that patches do not fill."""
    spec.num_patches(shape)


def check_mixture(specs: Collection[CodebookSpec]) -> None:
    """Raises UnsupportedError for several specs: the section has one form for all modules."""
    if len(set(specs)) > 1:
        raise UnsupportedError(
            "codebooks of one shape can be stored, and no other format beside them",
            seen=", ".join(spec.name for spec in dict.fromkeys(specs)),
            remedy="Use one format for all.",
        )


FORMAT = StoredFormat(
    method=METHOD,
    holds=CodebookSpec,
    read=read_aqlm,
    check=check_shape,
    check_mixture=check_mixture,
    encode=encode,
    section=write_aqlm,
)
