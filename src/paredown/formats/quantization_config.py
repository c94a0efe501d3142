"""compressed-tensors' section of config.json: which linear modules are quantized, and how
(https://github.com/vllm-project/compressed-tensors)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.compressed_tensors import Form, form_of
from paredown.spec.weight import ActivationDType, WeightDType, WeightSpec

METHOD = "compressed-tensors"
LINEAR = "Linear"
MIXED = "mixed-precision"
# What the library calls weights stored one by one that it has no other name for.
_NAIVE = "naive-quantized"
_INTEGERS: dict[int, WeightDType] = {
    2: "int2",
    3: "int3",
    4: "int4",
    5: "int5",
    6: "int6",
    8: "int8",
}
# A group of the config may be the name of one of these with its targets.
_PRESETS: dict[str, WeightSpec] = {
    **{f"W{bits}A16": WeightSpec(dtype=dtype, group_size=128) for bits, dtype in _INTEGERS.items()},
    **{
        f"W{bits}A8": WeightSpec(dtype=dtype, group_size=128, activations="int8_row")
        for bits, dtype in _INTEGERS.items()
    },
    "W4A16_ASYM": WeightSpec(dtype="int4", group_size=128, symmetric=False),
    "W8A8": WeightSpec(dtype="int8", activations="int8_row"),
    "INT8": WeightSpec(dtype="int8", activations="int8_row"),
    "FP8_DYNAMIC": WeightSpec(dtype="fp8"),
}
# Fields that say how a checkpoint came to be, not how to read it.
_CONFIG_NOTES = {"version", "global_compression_ratio", "run_compressed", "dequantize"}
_ARGUMENT_NOTES = {"observer", "observer_kwargs", "zp_dtype", "scale_dtype"}


@dataclass(frozen=True, kw_only=True)
class ConfigGroup:
    """`targets`: a class name ("Linear"), a module's name, or "re:" and a regular expression that
    matches the beginning of a module's name."""

    targets: tuple[str, ...]
    spec: WeightSpec


@dataclass(frozen=True, kw_only=True)
class CompressedTensorsConfig:
    """Which linear modules are compressed, and how."""

    groups: tuple[ConfigGroup, ...]
    ignore: tuple[str, ...]

    def spec_for(self, module_name: str) -> WeightSpec | None:
        """The form of a linear module's weight, None when it is not compressed. As in the library,
        a name goes before a regular expression and that before a class name."""
        if any(_matches(module_name, pattern) for pattern in self.ignore):
            return None
        specs = {target: group.spec for group in self.groups for target in group.targets}
        matching = [target for target in specs if _matches(module_name, target)]
        matching.sort(key=lambda target: (target == LINEAR, target.startswith("re:"), target))
        return specs[matching[0]] if matching else None


def parse_quantization_config(config: Mapping[str, object]) -> CompressedTensorsConfig:
    """Raises UnsupportedError, naming it, for anything that would make the weights or the
    arithmetic other than what we do, and CheckpointError for what makes no sense."""
    if config.get("quant_method") != METHOD:
        raise _unsupported("quant_method", config.get("quant_method"), f"Known is {METHOD}.")
    if config.get("quantization_status", "compressed") != "compressed":
        raise _unsupported("quantization_status", config["quantization_status"])
    ignore = config.get("ignore") or []
    sparsity = config.get("sparsity_config") or {}
    if sparsity != {} and not (isinstance(sparsity, dict) and sparsity.get("format") == "dense"):
        raise _unsupported("sparsity_config", sparsity)
    read = {"quant_method", "quantization_status", "ignore", "sparsity_config", "config_groups"}
    _refuse_others(config, read | {"format"} | _CONFIG_NOTES, "")
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise _damaged("config_groups", groups)
    parsed = [_parse_group(str(name), group, config) for name, group in groups.items()]
    return CompressedTensorsConfig(
        groups=tuple(group for group in parsed if group is not None),
        ignore=_patterns("ignore", ignore),
    )


def quantization_config(
    spec: WeightSpec | None, ignore: Iterable[str], named: Mapping[str, WeightSpec] | None = None
) -> dict[str, object]:
    """For config.json: every linear module but those in `ignore` has the form `spec` (None: none
    has), the modules in `named` their own."""
    targets = [] if spec is None else [(LINEAR, spec)]
    targets += (named or {}).items()
    specs = [spec for _, spec in targets]
    forms = {form_of(spec) for spec in specs}
    # Transformers 5.23 makes room for unpacked zero points and drops the packed ones, unless it is
    # told to dequantize while it loads.
    dequantize = {} if all(spec.symmetric for spec in specs) else {"dequantize": True}
    return {
        "quant_method": METHOD,
        "format": forms.pop() if len(forms) == 1 else MIXED,
        "quantization_status": "compressed",
        "config_groups": {
            f"group_{number}": _group(target, spec) for number, (target, spec) in enumerate(targets)
        },
        "ignore": list(ignore),
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "sparsity_config": {},
        "transform_config": {},
        **dequantize,
    }


def _group(target: str, spec: WeightSpec) -> dict[str, object]:
    weights: dict[str, object] = {
        "num_bits": spec.bits,
        "type": "int" if spec.is_integer else "float",
        "symmetric": spec.symmetric,
        "strategy": "channel" if spec.group_size is None else "group",
        "group_size": spec.group_size,
        "dynamic": False,
    }
    return {
        "targets": [target],
        "format": form_of(spec),
        "weights": weights,
        "input_activations": _input_arguments(spec),
        "output_activations": None,
    }


def _input_arguments(spec: WeightSpec) -> dict[str, object] | None:
    """None where the library is to take inputs as they are."""
    if form_of(spec) != "int-quantized":
        return None
    dynamic = spec.activations == "int8_row"
    return {
        "num_bits": 8,
        "type": "int",
        "symmetric": True,
        "strategy": "token" if dynamic else "tensor",
        "dynamic": dynamic,
    }


def _parse_group(name: str, group: object, config: Mapping[str, object]) -> ConfigGroup | None:
    where = f"config_groups.{name}"
    if isinstance(group, list):
        if name.upper() not in _PRESETS:
            raise _unsupported(where, name, f"Known presets: {', '.join(_PRESETS)}.")
        spec = _PRESETS[name.upper()]
        _check_form(where, config.get("format"), form_of(spec))
        return ConfigGroup(targets=_patterns(where, group), spec=spec)
    if not isinstance(group, dict):
        raise _damaged(where, group)
    _refuse_others(group, {"targets", "weights", "input_activations", "format"}, f"{where}.")
    if group.get("weights") is None:
        if group.get("input_activations") is not None:
            raise _unsupported(f"{where}.input_activations", group["input_activations"])
        return None
    spec = _parse_spec(where, group)
    _check_form(where, group.get("format") or config.get("format"), form_of(spec))
    return ConfigGroup(targets=_patterns(f"{where}.targets", group.get("targets")), spec=spec)


def _parse_spec(where: str, group: Mapping[str, object]) -> WeightSpec:
    weights = group["weights"]
    if not isinstance(weights, dict):
        raise _damaged(f"{where}.weights", weights)
    dtype, symmetric = _parse_numbers(f"{where}.weights", weights)
    activations = _parse_inputs(f"{where}.input_activations", group.get("input_activations"), dtype)
    spec = WeightSpec(
        dtype=dtype,
        group_size=_parse_group_size(f"{where}.weights", weights),
        symmetric=symmetric,
        **({} if activations is None else {"activations": activations}),
    )
    if not symmetric and form_of(spec) != "pack-quantized":
        raise _unsupported(f"{where}.weights.symmetric", symmetric, "Known is true in this form.")
    return spec


def _parse_numbers(where: str, weights: Mapping[str, object]) -> tuple[WeightDType, bool]:
    read = {"num_bits", "type", "symmetric", "strategy", "group_size", "actorder"}
    _refuse_others(weights, read | _ARGUMENT_NOTES, f"{where}.")
    bits, kind = weights.get("num_bits", 8), str(weights.get("type", "int")).lower()
    if type(bits) is not int:
        raise _damaged(f"{where}.num_bits", bits)
    if kind not in ("int", "float") or (kind == "float" and bits != 8):
        raise _unsupported(f"{where}.type", f"{kind} of {bits} bits", "Known are int and fp8.")
    if kind == "int" and bits not in _INTEGERS:
        known = ", ".join(map(str, _INTEGERS))
        raise _unsupported(f"{where}.num_bits", bits, f"Known are {known}.")
    if weights.get("actorder") not in (None, False, "weight", "static"):
        raise _unsupported(f"{where}.actorder", weights["actorder"])
    symmetric = weights.get("symmetric", True)
    if not isinstance(symmetric, bool):
        raise _damaged(f"{where}.symmetric", symmetric)
    return "fp8" if kind == "float" else _INTEGERS[bits], symmetric


def _parse_inputs(where: str, inputs: object, dtype: WeightDType) -> ActivationDType | None:
    """None for the default of the dtype. The inputs of fp8 weights are taken as bf16, which has
    every fp8 number, so that a dynamic fp8 scheme is met with more precision than it asks for."""
    if inputs is None:
        return None
    if not isinstance(inputs, dict):
        raise _damaged(where, inputs)
    read = {"num_bits", "type", "symmetric", "strategy", "dynamic"}
    _refuse_others(inputs, read | _ARGUMENT_NOTES, f"{where}.")
    kind = str(inputs.get("type", "int")).lower(), inputs.get("num_bits", 8)
    dynamic = inputs.get("dynamic", False)
    scheme = str(inputs.get("strategy") or "tensor").lower(), dynamic, inputs.get("symmetric", True)
    if dtype == "fp8" and kind == ("float", 8) and scheme == ("token", True, True):
        return None
    if dtype != "fp8" and kind == ("int", 8):
        if scheme == ("token", True, True):
            return "int8_row"
        if scheme == ("tensor", False, True):
            return "int8_static"
    known = "Known are symmetric int8, dynamic per token or static per tensor, and fp8 per token."
    raise _unsupported(where, inputs, known)


def _parse_group_size(where: str, weights: Mapping[str, object]) -> int | None:
    size = weights.get("group_size")
    if size is not None and type(size) is not int:
        raise _damaged(f"{where}.group_size", size)
    default = "tensor" if size is None else "channel" if size == -1 else "group"
    strategy = str(weights.get("strategy") or default).lower()
    if strategy == "channel":
        return None
    if strategy != "group":
        raise _unsupported(f"{where}.strategy", strategy, "Known are channel and group.")
    if size is None or size <= 0:
        raise _damaged(f"{where}.group_size", size)
    return size


def _check_form(where: str, form: object, expected: Form) -> None:
    known = {expected} if expected == "pack-quantized" else {expected, _NAIVE}
    if form not in known:
        raise _unsupported(f"{where}.format", form, f"Known is {expected} for such weights.")


def _refuse_others(fields: Mapping[str, object], known: set[str], where: str) -> None:
    """Fields that we do not read must say nothing."""
    for name, value in fields.items():
        if name not in known and value not in (None, False, {}, []):
            raise _unsupported(f"{where}{name}", value)


def _patterns(where: str, patterns: object) -> tuple[str, ...]:
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise _damaged(where, patterns)
    for pattern in patterns:
        if pattern.startswith("re:"):
            try:
                re.compile(pattern.removeprefix("re:"))
            except re.error as error:
                raise _damaged(where, f"{pattern}: {error}") from error
    return tuple(patterns)


def _matches(module_name: str, pattern: str) -> bool:
    """Only linear modules are asked about, so their class name matches each of them."""
    if pattern.startswith("re:"):
        return re.match(pattern.removeprefix("re:"), module_name) is not None
    return pattern in (LINEAR, module_name)


def _unsupported(field: str, value: object, known: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"quantization_config.{field} asks for something that cannot be read here",
        seen=_shorten(value),
        remedy=f"{known} Use another compressed form of this model, or the original.".strip(),
    )


def _damaged(field: str, value: object) -> CheckpointError:
    return CheckpointError(
        f"quantization_config.{field} makes no sense",
        seen=_shorten(value),
        remedy="Download config.json again.",
    )


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "..."
