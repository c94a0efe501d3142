"""The ways in which a checkpoint of the Hugging Face kind can be quantized, by quant_method."""

from collections.abc import Callable, Collection, Mapping

from paredown.formats.stored import (
    aqlm_config,
    awq_config,
    bitsandbytes_config,
    compressed_tensors_config,
    gptq_config,
)
from paredown.formats.stored.section import unsupported
from paredown.formats.stored.stored_form import Quantization

# Called with the section of config.json and the names of all tensors.
QUANT_METHODS: dict[str, Callable[[Mapping[str, object], Collection[str]], Quantization]] = {
    compressed_tensors_config.METHOD: compressed_tensors_config.read_compressed_tensors,
    gptq_config.METHOD: gptq_config.read_gptq,
    awq_config.METHOD: awq_config.read_awq,
    aqlm_config.METHOD: aqlm_config.read_aqlm,
    bitsandbytes_config.METHOD: bitsandbytes_config.read_bitsandbytes,
}


def read_quantization(section: Mapping[str, object], tensor_names: Collection[str]) -> Quantization:
    """What quantization_config says. Raises UnsupportedError for a method or anything in it that we
    do not know, CheckpointError for what makes no sense."""
    method = section.get("quant_method")
    if not isinstance(method, str) or method not in QUANT_METHODS:
        raise unsupported("quant_method", method, f"Known are {', '.join(QUANT_METHODS)}.")
    return QUANT_METHODS[method](section, tensor_names)
