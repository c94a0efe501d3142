"""AQLM's section of config.json, as the authors' converter and Transformers write it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from paredown.errors import CheckpointError, ConfigError, UnsupportedError
from paredown.formats.floating import to_weight
from paredown.formats.stored.aqlm import (
    CODEBOOKS,
    CODES,
    SCALES,
    AdditiveSpec,
    decode,
    dequantize,
)
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.section import check_any_codes, damaged, refuse_others, whole_number
from paredown.formats.stored.tensor_checks import SCALE_DTYPES, Tensors, bad_tensor
from paredown.formats.weight import Weight
from paredown.spec.weight import ScaleDType, WeightSpec

METHOD = "aqlm"
KEPT = "linear_weights_not_to_quantize"
NOTE = "sums of codebook vectors have no kernel, so the weights run dequantized"
# Fields of AdditiveSpec, with what Transformers takes where one is left out.
_DEFAULTS = {
    "in_group_size": 8,
    "out_group_size": 1,
    "num_codebooks": 1,
    "nbits_per_codebook": 16,
}


@dataclass(frozen=True, kw_only=True)
class AdditiveForm:
    """How one module is stored (formats/stored/stored_form.py)."""

    additive: AdditiveSpec
    float_dtype: ScaleDType = "fp16"

    @property
    def spec(self) -> WeightSpec:
        return WeightSpec(dtype=self.float_dtype)

    @property
    def name(self) -> str:
        return self.additive.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (CODES, CODEBOOKS, SCALES)

    @property
    def notes(self) -> tuple[str, ...]:
        return (NOTE,)

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        try:
            return self.additive.tensor_shapes(shape)
        except UnsupportedError as error:
            raise CheckpointError(error.what, seen=error.seen, remedy=error.remedy) from error

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> "AdditiveForm":
        stored = tensors[SCALES].dtype
        if stored not in SCALE_DTYPES:
            raise bad_tensor(SCALES, "has the wrong dtype", stored)
        return replace(self, float_dtype=SCALE_DTYPES[stored])

    def decode(self, tensors: Tensors) -> Weight:
        weight = decode(tensors, self.additive)
        return to_weight(dequantize(weight), weight.float_dtype)[0]


@dataclass(frozen=True, kw_only=True)
class AQLMConfig:
    """Which linear modules are stored in codebooks (formats/stored/stored_form.py): those that have
    codes in the files, all in one form."""

    notes: ClassVar[tuple[str, ...]] = ()
    kv: ClassVar[KVScheme] = NO_SCHEME

    form: AdditiveForm
    tensor_names: Collection[str]

    def form_for(self, module: str) -> AdditiveForm | None:
        return self.form if f"{module}.{CODES}" in self.tensor_names else None


def read_aqlm(config: Mapping[str, object], tensor_names: Collection[str]) -> AQLMConfig:
    """Raises UnsupportedError or CheckpointError for what cannot be read as it is meant."""
    refuse_others(config, {"quant_method", KEPT, *_DEFAULTS})
    numbers = {name: whole_number(config, name, default) for name, default in _DEFAULTS.items()}
    try:
        spec = AdditiveSpec(**numbers)
    except ConfigError as error:
        raise damaged("nbits_per_codebook and its like", numbers) from error
    check_any_codes(tensor_names, CODES, METHOD)
    return AQLMConfig(form=AdditiveForm(additive=spec), tensor_names=tensor_names)


def write_aqlm(spec: AdditiveSpec, floats: Collection[str]) -> dict[str, object]:
    """For config.json; `floats` names the linear modules that are not in codebooks.

    Transformers takes every linear module that is not named for codebooks. It documents names of
    tensors ("lm_head.weight"), and 5.23 compares names of modules: both stand here."""
    return {
        "quant_method": METHOD,
        **{name: getattr(spec, name) for name in _DEFAULTS},
        KEPT: [name for module in floats for name in (module, f"{module}.weight")],
    }
