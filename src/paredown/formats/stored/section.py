"""Checks and errors for fields of config.json's quantization_config that cannot be used."""

from collections.abc import Callable, Collection, Mapping, Sequence

from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.module_pattern import ModulePatterns, PatternError, UnreadPatternError, Where
from paredown.shown import shown, shown_list

# Fields that say how AutoGPTQ, GPTQModel, AutoAWQ or AutoRound made a checkpoint, or how other
# programs should run it. Any other unknown field is noted, not refused.
HISTORY = {"damp_percent", "damp_auto_increment", "true_sequential", "static_groups", "meta", "mse"}
HISTORY |= {"model_name_or_path", "model_file_base_name", "dataset", "tokenizer", "model_seqlen"}
HISTORY |= {"block_name_to_quantize", "module_name_preceding_first_block", "batch_size", "backend"}
HISTORY |= {"pad_token_id", "max_input_length", "cache_block_outputs", "act_group_aware"}
HISTORY |= {"modules_in_block_to_quantize", "use_cuda_fp16", "use_exllama", "disable_exllama"}
HISTORY |= {"exllama_config", "pack_impl", "awq_gemm_checkpoint", "version", "quant_type"}
HISTORY |= {"do_fuse", "fuse_max_seq_len", "modules_to_fuse", "failsafe", "fallback", "hessian"}
HISTORY |= {"offload_to_disk", "offload_to_disk_path", "gptaq", "foem", "gc_mode", "moe", "device"}
HISTORY |= {
    "autoround_version",
    "provider",
    "iters",
    "nsamples",
    "seqlen",
    "lr",
    "minmax_lr",
    "amp",
}
HISTORY |= {"enable_minmax_tuning", "enable_norm_bias_tuning", "enable_quanted_input"}
HISTORY |= {"gradient_accumulate_steps", "low_gpu_mem_usage", "quant_lm_head", "scale_dtype"}
HISTORY |= {"to_quant_block_names", "act_data_type", "act_dynamic", "act_sym", "act_group_size"}
# Fields that change the meaning of the tensors, or what is computed with them: rotated inputs,
# low-rank weights beside the codes, scales of scales, codebooks.
CHANGING = {"rotation", "rotation_config", "hadamard_config", "spinquant_config", "krot"}
CHANGING |= {"transform_config", "adapter", "is_marlin_format", "super_bits", "super_group_size"}
CHANGING |= {"codebook", "tensor_storage", "out_scales", "weight_block_size", "extra_config"}
# Fields that change the reading unless their value is plain.
_PLAIN: dict[str, Callable[[object], bool]] = {
    "data_type": lambda value: value in ("int", "int_sym", "int_asym"),
    "act_bits": lambda value: type(value) is int and value >= 16,
}


def unsupported(field: str, value: object, known: str = "") -> UnsupportedError:
    """Returns the error for a valid field that is not supported; `known` says what is."""
    return UnsupportedError(
        f"quantization_config.{field} asks for something that cannot be read here",
        seen=shown(value, 200),
        remedy=f"{known} Use another compressed form of this model, or the original.".strip(),
    )


def damaged(field: str, value: object) -> CheckpointError:
    return CheckpointError(
        f"quantization_config.{field} is not valid",
        seen=shown(value, 200),
        remedy="Download config.json again.",
    )


def refuse_others(fields: Mapping[str, object], known: Collection[str], where: str = "") -> None:
    """Raises UnsupportedError if fields that we do not read have a value. It is for arguments of
    the arithmetic, each of which matters."""
    for name, value in fields.items():
        if name not in known and _says_something(value):
            raise unsupported(f"{where}{name}", value)


def pass_over_others(
    fields: Mapping[str, object],
    known: Collection[str],
    where: str = "",
    changing: Collection[str] = CHANGING,
) -> tuple[str, ...]:
    """Returns the names of unknown fields that have a value. Every release of a tool records
    more about how it made a file, so these are ignored and the caller notes them. Raises
    UnsupportedError for fields that change how the tensors are read or what is computed with
    them."""
    names = []
    for name, value in fields.items():
        if name in known or name in HISTORY or not _says_something(value):
            continue
        is_plain = name in _PLAIN and _PLAIN[name](value)
        if name in changing or (name in _PLAIN and not is_plain):
            raise unsupported(f"{where}{name}", value)
        if not is_plain:
            names.append(f"{where}{name}")
    return tuple(names)


def note_passed_over(names: Collection[str]) -> tuple[str, ...]:
    """Returns notes on the fields that were ignored; empty if there were none."""
    if not names:
        return ()
    listed = shown_list(names)
    return (
        f"quantization_config has fields that are not known here and were passed over: {listed}",
    )


def check_patterns(field: str, patterns: Sequence[str], where: Where) -> None:
    """Raises CheckpointError for an invalid regular expression, UnsupportedError for one that is
    not supported here, or for too many of them."""
    try:
        ModulePatterns(patterns, where)
    except UnreadPatternError as error:
        raise unsupported(field, error) from error
    except PatternError as error:
        raise damaged(field, error) from error


def check_any_codes(tensor_names: Collection[str], suffix: str, method: str) -> None:
    """Raises CheckpointError if the files have no codes, for formats in which the files determine
    which modules are quantized."""
    if not any(name.endswith(f".{suffix}") for name in tensor_names):
        raise CheckpointError(
            f"config.json says that the model is quantized by {method}, but no tensor is",
            seen=f"{len(tensor_names)} tensors, none a {suffix}",
            remedy="Use the config.json that belongs to these weights, or download them again.",
        )


def check_same_method(fields: Mapping[str, object], method: str) -> None:
    """Raises UnsupportedError if the fields name another method. GPTQModel states its method
    twice, from version 7.7 on in a field of its own."""
    if fields.get("method", method) != method:
        raise unsupported("method", fields["method"], f"quant_method says {method}.")


def whole_number(fields: Mapping[str, object], field: str, default: int) -> int:
    """Returns a field as an integer. Raises CheckpointError for anything else (True is not a
    number)."""
    value = fields.get(field, default)
    if type(value) is not int:
        raise damaged(field, value)
    return value


def flag(fields: Mapping[str, object], field: str, default: bool) -> bool:
    value = fields.get(field, default)
    if not isinstance(value, bool):
        raise damaged(field, value)
    return value


def _says_something(value: object) -> bool:
    return value not in (None, False, {}, [])
