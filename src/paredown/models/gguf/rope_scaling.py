"""Converts the metadata of rotary scaling, `ARCH.rope.scaling.*`, to config.json fields and
back."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.families.fields import Fields
from paredown.models.families.gguf_rows import Metadata
from paredown.models.gguf.names import LONG_FACTORS, SHORT_FACTORS
from paredown.spec.rotary import Rotary

# llama.cpp's values for absent keys.
_YARN = {
    "yarn_ext_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
}


def scaling_fields(fields: Fields, arch: str) -> dict[str, object] | None:
    """Returns `rope_scaling` of config.json, or None for plain positions. A factor without a type
    is linear; `rope.scale_linear` is an older name of the factor. Raises UnsupportedError for an
    unknown scaling."""
    prefix = f"{arch}.rope.scaling"
    factor_key = f"{prefix}.factor"
    if factor_key not in fields.config:
        factor_key = f"{arch}.rope.scale_linear"
    # llama.cpp treats a factor of zero as absent.
    factor = fields.number(factor_key) if fields.config.get(factor_key) else 1.0
    kind = fields.text(f"{prefix}.type", "linear")
    if kind == "yarn":
        return _yarn(fields, arch, factor)
    fields.must_be(f"{prefix}.attn_factor", 1.0)
    if kind not in ("linear", "none"):
        raise UnsupportedError(
            f"{fields.where} asks for an unknown rotary scaling",
            seen=kind,
            remedy="Known scalings: none, linear, yarn, and Llama 3.1's as a tensor of factors; "
            "use the model's Hugging Face folder.",
        )
    if kind == "none" or factor == 1.0:
        return None
    return {"rope_type": "linear", "factor": factor}


def scaling_metadata(rotary: Rotary, arch: str) -> Metadata:
    """Returns the keys of a scaling that llama.cpp supports, and none for any other."""
    prefix = f"{arch}.rope.scaling"
    if rotary.scaling == "longrope":
        return {
            f"{prefix}.original_context_length": np.uint32(rotary.original_max_positions),
            f"{prefix}.attn_factor": np.float32(rotary.attention_factor),
        }
    if rotary.scaling not in ("linear", "yarn"):
        return {}
    found: Metadata = {
        f"{prefix}.type": rotary.scaling,
        f"{prefix}.factor": np.float32(rotary.factor),
    }
    if rotary.scaling == "yarn":
        multiplier = rotary.attention_factor / _usual_attention_factor(rotary.factor)
        found |= {
            f"{prefix}.original_context_length": np.uint32(rotary.original_max_positions),
            f"{prefix}.attn_factor": np.float32(multiplier),
            f"{prefix}.yarn_beta_fast": np.float32(rotary.beta_fast),
            f"{prefix}.yarn_beta_slow": np.float32(rotary.beta_slow),
        }
    return found


def longrope_fields(
    fields: Fields, arch: str, factors: Mapping[str, npt.NDArray[np.float32]]
) -> dict[str, object]:
    """Returns LongRoPE (arXiv 2402.13753), whose factors are tensors. Raises CheckpointError where
    one of the two is missing or lacks a factor for any rotated pair of columns."""
    prefix = f"{arch}.rope.scaling"
    lengths = {name: len(values) for name, values in factors.items()}
    num_columns = fields.integer(f"{arch}.rope.dimension_count", 2 * max(lengths.values()))
    for name in (SHORT_FACTORS, LONG_FACTORS):
        if 2 * lengths.get(name, 0) != num_columns:
            raise CheckpointError(
                f"{fields.where}: tensor {name!r} is missing, or has the wrong shape",
                seen=f"{lengths.get(name, 0)} factors for {num_columns} columns that turn",
                remedy="Convert the model to GGUF again, or download the file again.",
            )
    context = fields.integer(f"{arch}.context_length")
    return {
        "rope_type": "longrope",
        "short_factor": factors[SHORT_FACTORS].tolist(),
        "long_factor": factors[LONG_FACTORS].tolist(),
        "attention_factor": fields.number(f"{prefix}.attn_factor", 1.0),
        "original_max_position_embeddings": fields.integer(
            f"{prefix}.original_context_length", context
        ),
    }


def _usual_attention_factor(factor: float) -> float:
    return 1.0 + 0.1 * math.log(max(factor, 1.0))


def _yarn(fields: Fields, arch: str, factor: float) -> dict[str, object]:
    """Returns YaRN (arXiv 2309.00071). llama.cpp multiplies its usual attention factor by
    `attn_factor`. Without a stated original context, the full context is the original one.
    llama.cpp ignores the other keys for these architectures, so a file that sets them means another
    model than it runs."""
    prefix = f"{arch}.rope.scaling"
    for key, usual in _YARN.items():
        fields.must_be(f"{prefix}.{key}", usual)
    multiplier = fields.number(f"{prefix}.attn_factor", 1.0)
    context = fields.integer(f"{arch}.context_length")
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": fields.integer(
            f"{prefix}.original_context_length", context
        ),
        "attention_factor": multiplier * _usual_attention_factor(factor),
        "beta_fast": _YARN["yarn_beta_fast"],
        "beta_slow": _YARN["yarn_beta_slow"],
    }
