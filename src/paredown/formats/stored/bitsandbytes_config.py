"""bitsandbytes' section of config.json, as Transformers writes it for `load_in_8bit`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from paredown.formats.stored.bitsandbytes import (
    ROW_MAXIMA,
    SPEC,
    decode,
    tensor_shapes,
)
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.section import check_any_codes, unsupported
from paredown.formats.stored.tensor_checks import Tensors
from paredown.formats.weight import Weight
from paredown.spec.weight import WeightSpec

METHOD = "bitsandbytes"
THRESHOLD = 6.0
NOTE = (
    "LLM.int8() multiplies large inputs in 16 bits and rounds the others to int8; here no input is "
    "rounded, which is more exact"
)


class Int8Form:
    """How a module is stored (formats/stored/stored_form.py): one form for all."""

    spec: WeightSpec = SPEC
    name: str = SPEC.name
    suffixes: tuple[str, ...] = tuple(tensor_shapes((1, 1)))
    notes: tuple[str, ...] = (NOTE,)

    def tensor_shapes(self, shape: tuple[int, int]) -> dict[str, tuple[int, ...]]:
        return tensor_shapes(shape)

    def settle(self, tensors: Tensors, shape: tuple[int, int]) -> "Int8Form":
        return self

    def decode(self, tensors: Tensors) -> Weight:
        return decode(tensors)


@dataclass(frozen=True, kw_only=True)
class BitsAndBytesConfig:
    """Which linear modules are stored as codes (formats/stored/stored_form.py): those that have row
    maxima in the files."""

    notes: ClassVar[tuple[str, ...]] = ()
    kv: ClassVar[KVScheme] = NO_SCHEME

    tensor_names: Collection[str]

    def form_for(self, module: str) -> Int8Form | None:
        return Int8Form() if f"{module}.{ROW_MAXIMA}" in self.tensor_names else None


def read_bitsandbytes(
    config: Mapping[str, object], tensor_names: Collection[str]
) -> BitsAndBytesConfig:
    """Raises UnsupportedError for the 4-bit forms, CheckpointError for a folder without codes. The
    other fields are of the 4-bit forms, or say how a library would run the model."""
    if config.get("load_in_8bit") is not True or config.get("load_in_4bit"):
        seen = {name: config.get(name) for name in ("load_in_8bit", "load_in_4bit")}
        raise unsupported("load_in_8bit", seen, "Known is 8 bits.")
    check_any_codes(tensor_names, ROW_MAXIMA, METHOD)
    return BitsAndBytesConfig(tensor_names=tensor_names)


def write_bitsandbytes(floats: Iterable[str]) -> dict[str, object]:
    """For config.json; `floats` names the linear modules that are not codes (the output layer)."""
    return {
        "quant_method": METHOD,
        "load_in_8bit": True,
        "load_in_4bit": False,
        "llm_int8_threshold": THRESHOLD,
        "llm_int8_skip_modules": list(floats),
        "llm_int8_has_fp16_weight": False,
        "llm_int8_enable_fp32_cpu_offload": False,
    }
