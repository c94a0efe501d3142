"""Reads compressed-tensors' section of config.json: which linear modules are quantized, and how
(https://github.com/vllm-project/compressed-tensors)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from paredown.formats.stored.compressed_tensors.form import (
    PACKED,
    PLAIN,
    SCALE,
    CompressedForm,
    Form,
    form_of,
    stored_in_floats,
)
from paredown.formats.stored.compressed_tensors.targets import Targets, expressions
from paredown.formats.stored.kv_scheme import NO_SCHEME, KVScheme, parse_kv_scheme
from paredown.formats.stored.section import (
    CHANGING,
    check_patterns,
    damaged,
    note_passed_over,
    pass_over_others,
    refuse_others,
    unsupported,
)
from paredown.spec.weight import DTYPES, INTEGERS, ActivationDType, WeightDType, WeightSpec

METHOD = "compressed-tensors"
LINEAR = "Linear"
EMBEDDING = "Embedding"
NAIVE: Form = "naive-quantized"
_INTEGERS: dict[int, WeightDType] = {DTYPES[dtype].bits: dtype for dtype in INTEGERS}
_FORMS: dict[bool, tuple[Form, ...]] = {
    True: ("pack-quantized", "int-quantized", NAIVE),
    False: ("float-quantized", NAIVE),
}

FP8_INPUTS = "fp8 inputs are asked for; they stay in higher precision"
FP8_INPUTS_OF_INTEGERS = (
    "fp8 inputs are asked for; they are rounded to int8 instead, with a scale per row and group"
)
TENSOR_INPUTS = (
    "int8 inputs with one dynamic scale per tensor are asked for; they get one per token, so that "
    "a request does not depend on others"
)


def _weights(num_bits: int, **others: object) -> dict[str, object]:
    grouped = {"num_bits": num_bits, "type": "int", "strategy": "group", "group_size": 128}
    return {**grouped, **others}


def _inputs(kind: str, **others: object) -> dict[str, object]:
    return {"num_bits": 8, "type": kind, "strategy": "token", "dynamic": True, **others}


_CHANNEL = {"strategy": "channel", "group_size": None}
_W8A8 = {"weights": _weights(8, **_CHANNEL), "input_activations": _inputs("int")}
# A group of the section may be one of these names with its targets.
_PRESETS: dict[str, Mapping[str, object]] = {
    **{f"W{bits}A16": {"weights": _weights(bits)} for bits in range(2, 9)},
    **{
        f"W{bits}A8": {"weights": _weights(bits), "input_activations": _inputs("int")}
        for bits in range(2, 8)
    },
    "W4A16_ASYM": {"weights": _weights(4, symmetric=False)},
    "W8A8": _W8A8,
    "INT8": _W8A8,
    "W4AFP8": {"weights": _weights(4), "input_activations": _inputs("float")},
    "FP8": {
        "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
        "input_activations": _inputs("float", strategy="tensor", dynamic=False),
    },
    "FP8_DYNAMIC": {
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
        "input_activations": _inputs("float"),
    },
    "FP8_BLOCK": {
        "weights": {
            "num_bits": 8,
            "type": "float",
            "strategy": "block",
            "block_structure": [128, 128],
        },
        "input_activations": _inputs("float", strategy="group", group_size=128),
    },
}
# Fields that say how a checkpoint was made, not how to read it.
_CONFIG_NOTES = {"version", "global_compression_ratio", "run_compressed", "dequantize"}
_ARGUMENT_NOTES = {"observer", "observer_kwargs", "zp_dtype", "scale_dtype"}
_ORDERS = (None, False, "weight", "static", "group", "dynamic")


@dataclass(frozen=True, kw_only=True)
class ConfigGroup:
    """`targets` are a class name ("Linear"), a module's name, or "re:" and a regular expression
    that matches the beginning of a module's name. `unknown` lists the fields that were ignored."""

    targets: tuple[str, ...]
    form: CompressedForm
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompressedTensorsConfig:
    """Tells which linear modules are compressed, and how (formats/stored/stored_form.py)."""

    groups: tuple[ConfigGroup, ...]
    ignore: tuple[str, ...]
    tensor_names: Collection[str]
    kv: KVScheme = NO_SCHEME
    unknown: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        names = (*self.unknown, *(name for group in self.groups for name in group.unknown))
        return (*self.kv.notes, *note_passed_over(names))

    @cached_property
    def _forms(self) -> dict[str, CompressedForm]:
        return {target: group.form for group in self.groups for target in group.targets}

    @cached_property
    def _ignored(self) -> Targets:
        return Targets(self.ignore)

    @cached_property
    def _targets(self) -> Targets:
        return Targets(self._forms)

    def form_for(self, module: str) -> CompressedForm | None:
        """Returns the form that the section names for a module. As in the library, a name takes
        precedence over a regular expression, and that over a class name. Raises UnsupportedError
        for a module that should be packed but has floats beside its scales."""
        return self._form_for(module, LINEAR)

    def form_for_embedding(self, module: str) -> CompressedForm | None:
        """Does the same for the table of embeddings, whose class has another name."""
        return self._form_for(module, EMBEDDING)

    def _form_for(self, module: str, kind: str) -> CompressedForm | None:
        if self._ignored.find(module, kind) is not None:
            return None
        target = self._targets.find(module, kind)
        if target is None:
            return None
        form = self._forms[target]
        has_codes, has_floats, has_scales = (
            f"{module}.{suffix}" in self.tensor_names for suffix in (PACKED, PLAIN, SCALE)
        )
        if form.is_packed and has_floats and has_scales and not has_codes:
            raise stored_in_floats(f"{module}.{PLAIN}")
        return form


def read_compressed_tensors(
    config: Mapping[str, object], tensor_names: Collection[str]
) -> CompressedTensorsConfig:
    """Parses the section. Raises UnsupportedError, with the name, for any field that changes
    weights or arithmetic in a way we do not support, and for any unknown argument of these. Raises
    CheckpointError for invalid fields. `quantization_status` only reports the library's progress;
    the tensors show what is stored."""
    ignore = config.get("ignore") or []
    sparsity = config.get("sparsity_config") or {}
    if sparsity != {} and not (isinstance(sparsity, dict) and sparsity.get("format") == "dense"):
        raise unsupported("sparsity_config", sparsity)
    read = {"quant_method", "quantization_status", "ignore", "sparsity_config", "config_groups"}
    unknown = pass_over_others(config, read | {"format", "kv_cache_scheme"} | _CONFIG_NOTES)
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise damaged("config_groups", groups)
    parsed = [_parse_group(str(name), group, config) for name, group in groups.items()]
    return CompressedTensorsConfig(
        groups=tuple(group for group in parsed if group is not None),
        ignore=_patterns("ignore", ignore),
        tensor_names=tensor_names,
        unknown=unknown,
        kv=parse_kv_scheme(config.get("kv_cache_scheme")),
    )


def _parse_group(name: str, group: object, config: Mapping[str, object]) -> ConfigGroup | None:
    where = f"config_groups.{name}"
    if isinstance(group, list):
        if name.upper() not in _PRESETS:
            raise unsupported(where, name, f"Known presets: {', '.join(_PRESETS)}.")
        group = {**_PRESETS[name.upper()], "targets": group}
    if not isinstance(group, dict):
        raise damaged(where, group)
    read = {"targets", "weights", "input_activations", "format"}
    unknown = pass_over_others(group, read, f"{where}.", CHANGING | {"output_activations"})
    if group.get("weights") is None:
        if group.get("input_activations") is not None:
            raise unsupported(f"{where}.input_activations", group["input_activations"])
        return None
    form = _parse_form(where, group, group.get("format") or config.get("format"))
    targets = _patterns(f"{where}.targets", group.get("targets"))
    return ConfigGroup(targets=targets, form=form, unknown=unknown)


def _parse_form(where: str, group: Mapping[str, object], named: object) -> CompressedForm:
    weights = group["weights"]
    if not isinstance(weights, dict):
        raise damaged(f"{where}.weights", weights)
    form = _parse_weights(f"{where}.weights", weights)
    inputs = group.get("input_activations")
    form = _with_inputs(f"{where}.input_activations", inputs, form)
    known = _FORMS[form.spec.is_integer]
    found = next((one for one in known if one == named), None)
    if found is None:
        known_text = f"Known for such weights are {', '.join(known)}."
        raise unsupported(f"{where}.format", named, known_text)
    return replace(form, form=found)


def _parse_weights(where: str, weights: Mapping[str, object]) -> CompressedForm:
    read = {"num_bits", "type", "symmetric", "strategy", "group_size", "actorder"}
    refuse_others(weights, read | {"block_structure"} | _ARGUMENT_NOTES, f"{where}.")
    dtype, symmetric = _parse_numbers(where, weights)
    order = weights.get("actorder")
    if order not in _ORDERS:
        raise unsupported(f"{where}.actorder", order)
    strategy, group_size, block = _parse_strategy(where, weights)
    spec = WeightSpec(dtype=dtype, group_size=group_size, symmetric=symmetric)
    return CompressedForm(
        spec=spec,
        form=form_of(spec),
        block=block,
        per_tensor=strategy == "tensor",
        has_order=order in ("group", "dynamic"),
    )


def _parse_numbers(where: str, weights: Mapping[str, object]) -> tuple[WeightDType, bool]:
    bits, kind = weights.get("num_bits", 8), str(weights.get("type", "int")).lower()
    if type(bits) is not int:
        raise damaged(f"{where}.num_bits", bits)
    if kind not in ("int", "float") or (kind == "float" and bits != 8):
        raise unsupported(f"{where}.type", f"{kind} of {bits} bits", "Known are int and fp8.")
    if kind == "int" and bits not in _INTEGERS:
        raise unsupported(f"{where}.num_bits", bits, "Known are 1 to 8.")
    symmetric = weights.get("symmetric", True)
    if not isinstance(symmetric, bool):
        raise damaged(f"{where}.symmetric", symmetric)
    if kind == "float" and not symmetric:
        raise unsupported(f"{where}.symmetric", symmetric, "fp8 weights have no zero points.")
    return "fp8" if kind == "float" else _INTEGERS[bits], symmetric


def _parse_strategy(
    where: str, weights: Mapping[str, object]
) -> tuple[str, int | None, tuple[int, int] | None]:
    """Returns the strategy's name, the columns that share a scale (None: all), and a block's rows
    and columns."""
    size = weights.get("group_size")
    if size is not None and type(size) is not int:
        raise damaged(f"{where}.group_size", size)
    default = "tensor" if size is None else "channel" if size == -1 else "group"
    strategy = str(weights.get("strategy") or default).lower()
    structure = weights.get("block_structure")
    if strategy == "block":
        match structure:
            case [int(rows), int(columns)] if rows > 0 and columns > 0:
                return strategy, columns, (rows, columns)
        raise damaged(f"{where}.block_structure", structure)
    if structure is not None:
        raise damaged(f"{where}.block_structure", f"{structure} with strategy {strategy}")
    if strategy == "group":
        if size is None or size <= 0:
            raise damaged(f"{where}.group_size", size)
        return strategy, size, None
    if strategy not in ("channel", "tensor"):
        known = "Known are tensor, channel, group and block."
        raise unsupported(f"{where}.strategy", strategy, known)
    return strategy, None, None


def _with_inputs(where: str, inputs: object, form: CompressedForm) -> CompressedForm:
    """Returns the form with its inputs' rounding, and a note where that differs from what is
    asked."""
    if inputs is None:
        return form
    if not isinstance(inputs, dict):
        raise damaged(where, inputs)
    read = {"num_bits", "type", "symmetric", "strategy", "dynamic"}
    known = "Known are symmetric int8, per token or per tensor, and fp8."
    kind = str(inputs.get("type", "int")).lower(), inputs.get("num_bits", 8)
    dynamic = inputs.get("dynamic", False)
    strategy = str(inputs.get("strategy") or "tensor").lower()
    if type(dynamic) is not bool or inputs.get("symmetric", True) is not True:
        raise unsupported(where, inputs, known)
    if kind == ("float", 8):
        # The groups of the inputs do not matter, since we support none.
        refuse_others(inputs, read | {"group_size"} | _ARGUMENT_NOTES, f"{where}.")
        is_float = form.spec.dtype == "fp8"
        note = FP8_INPUTS if is_float else FP8_INPUTS_OF_INTEGERS
        if dynamic or strategy == "tensor":
            return replace(form, has_input_scale=not dynamic, notes=(note,))
    refuse_others(inputs, read | _ARGUMENT_NOTES, f"{where}.")
    schemes: dict[tuple[str, bool], tuple[ActivationDType, tuple[str, ...]]] = {
        ("token", True): ("int8_row", ()),
        ("tensor", True): ("int8_row", (TENSOR_INPUTS,)),
        ("tensor", False): ("int8_static", ()),
    }
    if kind != ("int", 8) or not form.spec.is_integer or (strategy, dynamic) not in schemes:
        raise unsupported(where, inputs, known)
    activations, notes = schemes[strategy, dynamic]
    spec = replace(form.spec, activations=activations)
    return replace(form, spec=spec, has_input_scale=not dynamic, notes=notes)


def _patterns(where: str, patterns: object) -> tuple[str, ...]:
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise damaged(where, patterns)
    check_patterns(where, expressions(patterns), "match")
    return tuple(patterns)
