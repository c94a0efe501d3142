"""AWQ's section of config.json."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from paredown.errors import UnsupportedError
from paredown.formats.stored.awq import BITS, CODES, AWQForm
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme
from paredown.formats.stored.section import (
    check_any_codes,
    check_same_method,
    damaged,
    flag,
    refuse_others,
    unsupported,
    whole_number,
)
from paredown.spec.weight import WeightSpec

METHOD = "awq"
VERSION = "gemm"
_READ = {"quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version"}
_READ |= {"method", "format", "modules_to_not_convert", "backend"}
# Fields that say how others are to run it, or how it came to be.
_NOTES = {"do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config", "lm_head", "meta"}
_NOTES |= {"desc_act", "sym", "pack_dtype", "damp_percent", "true_sequential", "model_seqlen"}
_NOTES |= {"batch_size", "act_group_aware", "cache_block_outputs", "checkpoint_format"}
_BACKENDS = (None, "autoawq", "auto", "gemm")


@dataclass(frozen=True, kw_only=True)
class AWQConfig:
    """Which linear modules are quantized (formats/stored/stored_form.py): those that have codes in
    the files."""

    notes: ClassVar[tuple[str, ...]] = ()
    kv: ClassVar[KVScheme] = NO_SCHEME

    spec: WeightSpec
    tensor_names: Collection[str]

    def form_for(self, module: str) -> AWQForm | None:
        return AWQForm(spec=self.spec) if f"{module}.{CODES}" in self.tensor_names else None


def read_awq(config: Mapping[str, object], tensor_names: Collection[str]) -> AWQConfig:
    """Raises UnsupportedError or CheckpointError for what cannot be read as it is meant."""
    refuse_others(config, _READ | _NOTES)
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
    if not flag(config, "zero_point", True):
        raise unsupported("zero_point", False, "Known is true.")
    size = whole_number(config, "q_group_size" if "q_group_size" in config else "group_size", 128)
    if size == 0 or size < -1:
        raise damaged("group_size", size)
    group_size = None if size == -1 else size
    spec = WeightSpec(dtype="int4", group_size=group_size, symmetric=False)
    return AWQConfig(spec=spec, tensor_names=tensor_names)


def write_awq(
    specs: Mapping[str, WeightSpec], floats: Collection[str], output: str
) -> dict[str, object]:
    """For config.json; see write_gptq. Raises UnsupportedError for what it cannot say."""
    sizes = {spec.group_size for spec in specs.values()}
    if len(sizes) > 1 or output in specs:
        raise UnsupportedError(
            "AWQ knows one group size for a model and leaves its output layer in floats",
            seen=", ".join(sorted({spec.name for spec in specs.values()}))
            + (f"; {output} quantized" if output in specs else ""),
            remedy="Convert to compressed-tensors or gptq.",
        )
    size = sizes.pop()
    kept = [module for module in floats if module != output]
    return {
        "quant_method": METHOD,
        "bits": BITS,
        "group_size": -1 if size is None else size,
        "zero_point": True,
        "version": VERSION,
        "modules_to_not_convert": kept or None,
    }
