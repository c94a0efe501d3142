"""compressed-tensors' kv_cache_scheme: how a checkpoint wants keys and values to be kept.

Our int8 pages find a scale for every token and head as it comes (spec/kv.py). Scales that the
checkpoint brings (k_scale and v_scale of an attention module) are not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paredown.formats.section import damaged, refuse_others, unsupported

STATIC_INT8 = (
    "int8 keys and values with static scales are asked for; int8 pages find a scale for each token"
)
FP8 = "fp8 keys and values are asked for; they are kept in bf16"
_READ = {"num_bits", "type", "symmetric", "strategy", "dynamic", "observer", "observer_kwargs"}
_READ |= {"zp_dtype", "scale_dtype", "group_size"}
# Pages and their scales are symmetric; what the library calls others is refused by name.
_STRATEGIES = ("tensor", "attn_head", "token")


@dataclass(frozen=True, kw_only=True)
class KVScheme:
    """`tensors`: regular expressions for names of the scales that come along."""

    is_int8: bool = False
    notes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()


NO_SCHEME = KVScheme()


def parse_kv_scheme(scheme: object) -> KVScheme:
    """Raises UnsupportedError or CheckpointError for what is not int8 or fp8, symmetric."""
    if scheme is None:
        return NO_SCHEME
    where = "kv_cache_scheme"
    if not isinstance(scheme, Mapping):
        raise damaged(where, scheme)
    refuse_others(scheme, _READ, f"{where}.")
    kind = str(scheme.get("type", "int")).lower()
    dynamic = scheme.get("dynamic", False)
    strategy = str(scheme.get("strategy") or "tensor").lower()
    is_known = scheme.get("num_bits", 8) == 8 and kind in ("int", "float")
    if not is_known or scheme.get("symmetric", True) is not True or strategy not in _STRATEGIES:
        raise unsupported(where, scheme, "Known are symmetric int8 and fp8.")
    if not isinstance(dynamic, bool):
        raise damaged(f"{where}.dynamic", dynamic)
    tensors = () if dynamic else (r".*\.self_attn\.[kv]_scale",)
    if kind == "float":
        return KVScheme(notes=(FP8,), tensors=tensors)
    return KVScheme(is_int8=True, notes=() if dynamic else (STATIC_INT8,), tensors=tensors)
