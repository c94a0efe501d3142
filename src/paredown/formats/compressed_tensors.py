"""compressed-tensors, form "pack-quantized": integer weights in safetensors, as vLLM and
Transformers load them (https://github.com/vllm-project/compressed-tensors).

A module's tensors, after its name and a dot:
    weight_packed      I32 [O, ceil(I * b / 32)]   unsigned codes, see formats/bits.py
    weight_scale       float [O, G]
    weight_shape       I64 [2]                     O, I
    weight_zero_point  I32 [ceil(O * b / 32), G]   asymmetric only; packed down the columns
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.bits import num_words, pack_bits, unpack_bits
from paredown.formats.floating import STORED_FLOATS
from paredown.formats.floating import cast as cast_floats
from paredown.formats.integer import group_columns
from paredown.formats.tensor import StoredDType, StoredTensor
from paredown.formats.weight import Weight
from paredown.spec.weight import ScaleDType, WeightDType, WeightSpec

METHOD = "compressed-tensors"
PACK_QUANTIZED = "pack-quantized"
LINEAR = "Linear"
_INTEGERS: dict[int, WeightDType] = {4: "int4", 8: "int8"}
# A group of the config may be the name of one of these with its targets.
_PRESETS: dict[str, WeightSpec] = {
    "W4A16": WeightSpec(dtype="int4", group_size=128),
    "W4A16_ASYM": WeightSpec(dtype="int4", group_size=128, symmetric=False),
    "W8A16": WeightSpec(dtype="int8", group_size=128),
}
# Fields that say how a checkpoint came to be, not how to read it.
_CONFIG_NOTES = {"version", "global_compression_ratio", "run_compressed", "dequantize"}
_WEIGHT_NOTES = {"observer", "observer_kwargs", "zp_dtype", "scale_dtype"}

PACKED = "weight_packed"
SCALE = "weight_scale"
SHAPE = "weight_shape"
ZERO_POINT = "weight_zero_point"

_SCALE_DTYPES: dict[StoredDType, ScaleDType] = {
    stored: dtype for dtype, stored in STORED_FLOATS.items()
}


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


def quantization_config(spec: WeightSpec, ignore: Iterable[str]) -> dict[str, object]:
    """For config.json: every linear module but those in `ignore` has the form `spec`."""
    # Transformers 5.23 makes room for unpacked zero points and drops the packed ones, unless it is
    # told to dequantize while it loads.
    dequantize = {} if spec.symmetric else {"dequantize": True}
    assert spec.is_integer, spec.name
    weights: dict[str, object] = {
        "num_bits": spec.bits,
        "type": "int",
        "symmetric": spec.symmetric,
        "strategy": "channel" if spec.group_size is None else "group",
        "group_size": spec.group_size,
        "dynamic": False,
    }
    group = {
        "targets": [LINEAR],
        "format": PACK_QUANTIZED,
        "weights": weights,
        "input_activations": None,
        "output_activations": None,
    }
    return {
        "quant_method": METHOD,
        "format": PACK_QUANTIZED,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(ignore),
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "sparsity_config": {},
        "transform_config": {},
        **dequantize,
    }


def tensor_suffixes(spec: WeightSpec) -> tuple[str, ...]:
    """What a module's name is followed by, for each tensor of a weight."""
    if not spec.is_integer:
        return ("weight",)
    return (PACKED, SCALE, SHAPE) if spec.symmetric else (PACKED, SCALE, SHAPE, ZERO_POINT)


def encode(weight: Weight) -> dict[str, StoredTensor]:
    """An integer weight's tensors, by suffix."""
    assert weight.spec.is_integer
    assert weight.scales_OG is not None
    bits = weight.spec.bits
    codes_OI = cast(npt.NDArray[np.uint8], weight.values_OI)
    tensors = {
        PACKED: StoredTensor(dtype="I32", array=pack_bits(codes_OI, bits)),
        SCALE: cast_floats(weight.scales_OG, weight.scale_dtype).tensor,
        SHAPE: StoredTensor(dtype="I64", array=np.array(weight.shape, np.int64)),
    }
    if weight.zero_points_OG is not None:
        words_GW = pack_bits(np.ascontiguousarray(weight.zero_points_OG.T), bits)
        tensors[ZERO_POINT] = StoredTensor(dtype="I32", array=np.ascontiguousarray(words_GW.T))
    return tensors


def decode(tensors: Mapping[str, StoredTensor], spec: WeightSpec) -> Weight:
    """The weight from a module's tensors, by suffix. Raises CheckpointError for tensors that are
    missing or contradict each other."""
    num_rows, num_columns = _read_shape(tensors)
    if spec.group_size is not None and num_columns % spec.group_size != 0:
        seen = f"{num_columns} columns in groups of {spec.group_size}"
        raise _bad(SHAPE, "does not fit the group size in config.json", seen)
    num_groups = num_columns // group_columns(spec, num_columns)
    packed = _take(tensors, PACKED, ("I32",), (num_rows, num_words(num_columns, spec.bits)))
    scale = _take(tensors, SCALE, tuple(_SCALE_DTYPES), (num_rows, num_groups))
    scales_OG = scale.to_float32()
    if not np.isfinite(scales_OG).all():
        raise _bad(SCALE, "holds values that are not finite numbers", "NaN or infinity")
    zeros_OG = None
    if not spec.symmetric:
        shape = (num_words(num_rows, spec.bits), num_groups)
        words_WG = _words(_take(tensors, ZERO_POINT, ("I32",), shape))
        zeros_OG = unpack_bits(np.ascontiguousarray(words_WG.T), spec.bits, num_rows).T
    return Weight(
        spec=spec,
        values_OI=unpack_bits(_words(packed), spec.bits, num_columns),
        scales_OG=scales_OG,
        zero_points_OG=None if zeros_OG is None else np.ascontiguousarray(zeros_OG),
        scale_dtype=_SCALE_DTYPES[scale.dtype],
    )


def _read_shape(tensors: Mapping[str, StoredTensor]) -> tuple[int, int]:
    values = _take(tensors, SHAPE, ("I64", "I32"), (2,)).array.tolist()
    num_rows, num_columns = (int(value) for value in values)
    if num_rows <= 0 or num_columns <= 0:
        raise _bad(SHAPE, "is not the shape of a weight", [num_rows, num_columns])
    return num_rows, num_columns


def _take(
    tensors: Mapping[str, StoredTensor],
    suffix: str,
    dtypes: tuple[StoredDType, ...],
    shape: tuple[int, ...],
) -> StoredTensor:
    if suffix not in tensors:
        raise _bad(suffix, "is missing", ", ".join(sorted(tensors)) or "no tensors")
    tensor = tensors[suffix]
    if tensor.dtype not in dtypes or tensor.shape != shape:
        wanted = f"{' or '.join(dtypes)} {list(shape)}"
        seen = f"{tensor.dtype} {list(tensor.shape)}, expected {wanted}"
        raise _bad(suffix, "has the wrong dtype or shape", seen)
    return tensor


def _words(tensor: StoredTensor) -> npt.NDArray[np.int32]:
    return cast(npt.NDArray[np.int32], tensor.array)


def _bad(suffix: str, problem: str, seen: object) -> CheckpointError:
    return CheckpointError(
        f"tensor {suffix} of a compressed weight {problem}",
        seen=seen,
        remedy="Use the config.json that belongs to these weights, or download them again.",
    )


def _parse_group(name: str, group: object, config: Mapping[str, object]) -> ConfigGroup | None:
    where = f"config_groups.{name}"
    if isinstance(group, list):
        _check_form(where, config.get("format"))
        if name.upper() not in _PRESETS:
            raise _unsupported(where, name, f"Known presets: {', '.join(_PRESETS)}.")
        return ConfigGroup(targets=_patterns(where, group), spec=_PRESETS[name.upper()])
    if not isinstance(group, dict):
        raise _damaged(where, group)
    _refuse_others(group, {"targets", "weights", "format"}, f"{where}.")
    if group.get("weights") is None:
        return None
    _check_form(where, group.get("format") or config.get("format"))
    spec = _parse_weights(f"{where}.weights", group["weights"])
    return ConfigGroup(targets=_patterns(f"{where}.targets", group.get("targets")), spec=spec)


def _parse_weights(where: str, weights: object) -> WeightSpec:
    if not isinstance(weights, dict):
        raise _damaged(where, weights)
    read = {"num_bits", "type", "symmetric", "strategy", "group_size", "actorder"}
    _refuse_others(weights, read | _WEIGHT_NOTES, f"{where}.")
    if str(weights.get("type", "int")).lower() != "int":
        seen = f"{weights['type']} of {weights.get('num_bits')} bits"
        raise _unsupported(f"{where}.type", seen)
    bits = weights.get("num_bits", 8)
    if type(bits) is not int or bits not in _INTEGERS:
        raise _unsupported(f"{where}.num_bits", bits, "Known are 4 and 8.")
    if weights.get("actorder") not in (None, False, "weight", "static"):
        raise _unsupported(f"{where}.actorder", weights["actorder"])
    symmetric = weights.get("symmetric", True)
    if not isinstance(symmetric, bool):
        raise _damaged(f"{where}.symmetric", symmetric)
    return WeightSpec(
        dtype=_INTEGERS[bits],
        group_size=_parse_group_size(where, weights),
        symmetric=symmetric,
    )


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


def _check_form(where: str, form: object) -> None:
    if form != PACK_QUANTIZED:
        raise _unsupported(f"{where}.format", form, f"Known is {PACK_QUANTIZED}.")


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
