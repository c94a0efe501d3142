"""GPTQ's section of config.json, and quantize_config.json, which says the same."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from paredown.formats.stored.gptq import CODES, GPTQ_DTYPES, ORDER, GPTQForm, Version
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

METHOD = "gptq"
FILE_NAME = "quantize_config.json"
VERSIONS: dict[str, Version] = {"gptq": 1, "gptq_v2": 2}
_FORMAT_OF = {version: name for name, version in VERSIONS.items()}
_READ = {"quant_method", "bits", "group_size", "sym", "desc_act", "checkpoint_format", "format"}
_READ |= {"method", "pack_dtype", "dynamic", "lm_head"}
# Fields that say how a checkpoint came to be, or how others are to run it.
_NOTES = {"damp_percent", "damp_auto_increment", "true_sequential", "static_groups", "meta", "mse"}
_NOTES |= {"model_name_or_path", "model_file_base_name", "dataset", "tokenizer", "model_seqlen"}
_NOTES |= {"block_name_to_quantize", "module_name_preceding_first_block", "batch_size", "backend"}
_NOTES |= {"pad_token_id", "max_input_length", "cache_block_outputs", "act_group_aware"}
_NOTES |= {"modules_in_block_to_quantize", "use_cuda_fp16", "use_exllama", "disable_exllama"}
_NOTES |= {"exllama_config", "pack_impl", "awq_gemm_checkpoint", "version", "quant_type"}
_OVERRIDES = {"bits", "group_size", "sym", "desc_act"}


@dataclass(frozen=True, kw_only=True)
class GPTQRule:
    """`form` of the modules whose names the pattern matches from their beginning; None: they are
    stored in floats."""

    pattern: str
    form: WeightSpec | None


@dataclass(frozen=True, kw_only=True)
class GPTQConfig:
    """Which linear modules are quantized, and how (formats/stored/stored_form.py): those that have
    codes in the files, in the form of the first rule that matches, else of `spec`."""

    notes: ClassVar[tuple[str, ...]] = ()
    kv: ClassVar[KVScheme] = NO_SCHEME

    spec: WeightSpec
    version: Version
    rules: tuple[GPTQRule, ...]
    tensor_names: Collection[str]

    def form_for(self, module: str) -> GPTQForm | None:
        if f"{module}.{CODES}" not in self.tensor_names:
            return None
        matching = (rule for rule in self.rules if re.match(rule.pattern, module))
        rule = next(matching, None)
        spec = self.spec if rule is None else rule.form
        if spec is None:
            return None
        has_order = f"{module}.{ORDER}" in self.tensor_names
        return GPTQForm(spec=spec, version=self.version, has_order=has_order)


def read_gptq(config: Mapping[str, object], tensor_names: Collection[str]) -> GPTQConfig:
    """Raises UnsupportedError or CheckpointError for what cannot be read as it is meant."""
    refuse_others(config, _READ | _NOTES)
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
    return GPTQConfig(
        spec=_parse_spec(config),
        version=VERSIONS[named],
        rules=tuple(_parse_rule(str(name), own, config) for name, own in dynamic.items()),
        tensor_names=tensor_names,
    )


def write_gptq(
    specs: Mapping[str, WeightSpec], floats: Collection[str], output: str, version: Version
) -> dict[str, object]:
    """For config.json: `specs` are the quantized modules', `floats` names the other linear modules,
    `output` the output layer. What most modules have is for all, others are named one by one."""
    base = Counter(specs.values()).most_common(1)[0][0]
    dynamic: dict[str, object] = {
        f"-:^{re.escape(module)}$": {} for module in floats if module != output
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


def _parse_spec(config: Mapping[str, object]) -> WeightSpec:
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
    """A name is a regular expression after "-:" (not quantized), "+:" or nothing (overrides)."""
    where = f"dynamic.{name}"
    pattern = name.removeprefix("+:").removeprefix("-:")
    try:
        re.compile(pattern)
    except re.error as error:
        raise damaged(where, error) from error
    if name.startswith("-:"):
        return GPTQRule(pattern=pattern, form=None)
    if not isinstance(own, dict):
        raise damaged(where, own)
    refuse_others(own, _OVERRIDES | _NOTES, f"{where}.")
    return GPTQRule(pattern=pattern, form=_parse_spec({**config, **own}))
