"""The metadata of rotary scaling, `ARCH.rope.scaling.*`, as the fields of config.json."""

import math

from paredown.errors import UnsupportedError
from paredown.models.families.fields import Fields


def scaling_fields(fields: Fields, arch: str) -> dict[str, object] | None:
    """`rope_scaling` of config.json; None for plain positions. A factor without a type is linear,
    and `rope.scale_linear` is an older name of the factor. Raises UnsupportedError for a scaling
    that is not known here."""
    prefix = f"{arch}.rope.scaling"
    factor_key = f"{prefix}.factor"
    if factor_key not in fields.config:
        factor_key = f"{arch}.rope.scale_linear"
    # llama.cpp takes a factor of zero as one that is not given.
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


def _yarn(fields: Fields, arch: str, factor: float) -> dict[str, object]:
    """YaRN (arXiv 2309.00071). llama.cpp multiplies its usual attention factor by `attn_factor`;
    without a length of its own the original context is the whole one."""
    prefix = f"{arch}.rope.scaling"
    fields.must_be(f"{prefix}.yarn_ext_factor", 1.0)
    multiplier = fields.number(f"{prefix}.attn_factor", 1.0)
    multiplier *= fields.number(f"{prefix}.yarn_attn_factor", 1.0)
    context = fields.integer(f"{arch}.context_length")
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": fields.integer(
            f"{prefix}.original_context_length", context
        ),
        "attention_factor": multiplier * (1.0 + 0.1 * math.log(max(factor, 1.0))),
        "beta_fast": fields.number(f"{prefix}.yarn_beta_fast", 32.0),
        "beta_slow": fields.number(f"{prefix}.yarn_beta_slow", 1.0),
    }
