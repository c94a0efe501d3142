"""AutoRound's own section of config.json (https://github.com/intel/auto-round). `packing_format`
says whether its modules are packed as those of GPTQ or AWQ:

    auto_round:auto_gptq               GPTQ's first version: zero points are stored minus 1
    auto_round, auto_round:gptqmodel   its second: zero points as they are
    auto_round:auto_awq                AWQ

`extra_config` overrides bits, group size and symmetry of modules, by name or by a regular
expression that matches anywhere in a name; 16 bits means floats.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from paredown.formats.module_pattern import ModulePatterns
from paredown.formats.stored import awq, gptq
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.section import (
    CHANGING,
    check_any_codes,
    check_patterns,
    damaged,
    note_passed_over,
    pass_over_others,
    unsupported,
)
from paredown.spec.weight import WeightSpec

METHOD = "auto-round"
CODES = gptq.CODES
_FLOAT_BITS = 16
Packing = Literal["gptq", "gptq-v2", "awq"]
PACKINGS: dict[str, Packing] = {
    "auto": "gptq",
    "auto_round:gptq": "gptq",
    "auto_round:auto_gptq": "gptq",
    "auto_round": "gptq-v2",
    "auto_round:gptqmodel": "gptq-v2",
    "auto_round:awq": "awq",
    "auto_round:auto_awq": "awq",
}
_DEFAULT_PACKING = "auto_round:auto_gptq"
# Earlier releases append the name of a kernel to the packing.
_KERNELS = (":exllamav2", ":tritonv2", ":marlin")
_OVERRIDES = {"bits", "group_size", "sym"}
_READ = {"quant_method", "packing_format", "extra_config", *_OVERRIDES}
_CHANGING = (CHANGING - {"extra_config"}) | {"dynamic"}


@dataclass(frozen=True, kw_only=True)
class AutoRoundConfig:
    """Tells which linear modules are quantized (formats/stored/stored_form.py): those with codes
    in the files. `specs` overrides `spec` by a module's name, else by the first pattern found in
    it; None means floats."""

    kv: ClassVar[KVScheme] = NO_SCHEME

    packing: Packing
    spec: WeightSpec
    specs: Mapping[str, WeightSpec | None]
    tensor_names: Collection[str]
    notes: tuple[str, ...] = ()

    @cached_property
    def _patterns(self) -> ModulePatterns:
        return ModulePatterns(list(self.specs), "search")

    def form_for_embedding(self, module: str) -> None:
        return None

    def form_for(self, module: str) -> gptq.GPTQForm | awq.AWQForm | None:
        if f"{module}.{CODES}" not in self.tensor_names:
            return None
        spec = self._spec_of(module)
        if spec is None:
            return None
        if self.packing == "awq":
            return awq.AWQForm(spec=spec)
        has_order = f"{module}.{gptq.ORDER}" in self.tensor_names
        return gptq.GPTQForm(
            spec=spec, version=1 if self.packing == "gptq" else 2, has_order=has_order
        )

    def _spec_of(self, module: str) -> WeightSpec | None:
        if module in self.specs:
            return self.specs[module]
        place = self._patterns.first(module)
        return self.spec if place is None else list(self.specs.values())[place]


def read_auto_round(config: Mapping[str, object], tensor_names: Collection[str]) -> AutoRoundConfig:
    """Parses the section. Raises UnsupportedError or CheckpointError for anything that cannot be
    read as intended."""
    unknown = pass_over_others(config, _READ, changing=_CHANGING)
    packing = _parse_packing(config.get("packing_format", _DEFAULT_PACKING))
    check_any_codes(tensor_names, CODES, METHOD)
    extra = config.get("extra_config") or {}
    if not isinstance(extra, dict):
        raise damaged("extra_config", extra)
    check_patterns("extra_config", list(map(str, extra)), "search")
    specs = {}
    for name, own in extra.items():
        where = f"extra_config.{name}"
        if not isinstance(own, dict):
            raise damaged(where, own)
        is_float = own.get("bits") == _FLOAT_BITS
        known = own if is_float else _OVERRIDES
        unknown += pass_over_others(own, known, f"{where}.", _CHANGING)
        specs[str(name)] = None if is_float else _parse_spec({**config, **own}, packing)
    return AutoRoundConfig(
        packing=packing,
        spec=_parse_spec(config, packing),
        specs=specs,
        tensor_names=tensor_names,
        notes=note_passed_over(unknown),
    )


def _parse_packing(named: object) -> Packing:
    text = str(named)
    for kernel in _KERNELS:
        text = text.removesuffix(kernel)
    if text not in PACKINGS:
        raise unsupported("packing_format", named, f"Known are {', '.join(PACKINGS)}.")
    return PACKINGS[text]


def _parse_spec(config: Mapping[str, object], packing: Packing) -> WeightSpec:
    spec = gptq.parse_spec(config)
    if packing == "awq" and spec.bits != awq.BITS:
        raise unsupported("bits", spec.bits, f"Known in AWQ's packing is {awq.BITS}.")
    return spec
