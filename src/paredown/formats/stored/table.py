"""The formats of quantized Hugging Face checkpoints, by their usual names."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from paredown.formats.stored import aqlm, auto_round, awq, bitsandbytes, gptq
from paredown.formats.stored.compressed_tensors import format as compressed_tensors
from paredown.formats.stored.section import unsupported
from paredown.formats.stored.stored_form import Quantization
from paredown.formats.stored.stored_format import StoredFormat
from paredown.formats.tensor import StoredTensor
from paredown.formats.weight import StoredSpec, Weight

# Compression writes the first format that holds a kind of weight.
STORED_FORMATS: dict[str, StoredFormat[Any, Any]] = {
    "compressed-tensors": compressed_tensors.FORMAT,
    "gptq": gptq.FORMAT,
    "gptq-v2": gptq.FORMAT_V2,
    "awq": awq.FORMAT,
    "aqlm": aqlm.FORMAT,
    "bitsandbytes": bitsandbytes.FORMAT,
}

# AutoRound's own section is read but never written: its tensors are those of GPTQ or AWQ.
_READERS: dict[str, Callable[[Mapping[str, object], Collection[str]], Quantization]] = {
    **{stored.method: stored.read for stored in STORED_FORMATS.values()},
    auto_round.METHOD: auto_round.read_auto_round,
}


def read_quantization(section: Mapping[str, object], tensor_names: Collection[str]) -> Quantization:
    """Parses quantization_config. Raises UnsupportedError for an unknown method or field,
    CheckpointError for an invalid one."""
    method = section.get("quant_method")
    if not isinstance(method, str) or method not in _READERS:
        raise unsupported("quant_method", method, f"Known are {', '.join(_READERS)}.")
    return _READERS[method](section, tensor_names)


def written_format(spec: StoredSpec) -> StoredFormat[Any, Any]:
    """Returns the format in which a compressed weight of that spec is written."""
    return next(one for one in STORED_FORMATS.values() if isinstance(spec, one.holds))


def stored_tensors(weight: Weight) -> dict[str, StoredTensor]:
    """Returns a compressed weight's tensors, by suffix."""
    return written_format(weight.spec).encode(weight)
