"""The quantized formats that can be written, each as one row of functions from formats/."""

from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial

from paredown.compress.convert.quantized_folder import QuantizedTarget
from paredown.formats.stored import (
    awq,
    awq_config,
    bitsandbytes,
    bitsandbytes_config,
    compressed_tensors,
    gptq,
    gptq_config,
)
from paredown.formats.stored.compressed_tensors_section import quantization_config
from paredown.spec.weight import WeightSpec


def _takes_all(spec: WeightSpec, shape: tuple[int, int]) -> None:
    """compressed-tensors holds whatever we can read."""


def _compressed_section(
    specs: Mapping[str, WeightSpec], floats: Collection[str], output: str
) -> dict[str, object]:
    """What most modules have is for all linear ones, the others are named."""
    common = Counter(specs.values()).most_common(1)[0][0]
    named = {module: spec for module, spec in specs.items() if spec != common}
    return quantization_config(common, ignore=floats, named=named)


def _bitsandbytes_section(
    specs: Mapping[str, WeightSpec], floats: Collection[str], output: str
) -> dict[str, object]:
    """One form for all, so only the modules without it are named."""
    return bitsandbytes_config.write_bitsandbytes(floats)


def _gptq(version: gptq.Version) -> QuantizedTarget:
    return QuantizedTarget(
        check=gptq.check_spec,
        encode=partial(gptq.encode_gptq, version=version),
        section=partial(gptq_config.write_gptq, version=version),
        file=gptq_config.FILE_NAME,
    )


COMPRESSED_TENSORS = QuantizedTarget(
    check=_takes_all,
    encode=compressed_tensors.encode,
    section=_compressed_section,
    kv_field="kv_cache_scheme",
)
GPTQ = _gptq(1)
GPTQ_V2 = _gptq(2)
AWQ = QuantizedTarget(check=awq.check_spec, encode=awq.encode_awq, section=awq_config.write_awq)
BITSANDBYTES = QuantizedTarget(
    check=bitsandbytes.check_spec, encode=bitsandbytes.encode, section=_bitsandbytes_section
)
