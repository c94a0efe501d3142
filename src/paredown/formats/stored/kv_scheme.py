"""compressed-tensors' kv_cache_scheme: how a checkpoint wants keys and values to be kept.

Our int8 pages find a scale for every token and head as it comes (spec/kv.py). Scales that the
checkpoint brings (k_scale and v_scale of an attention module) are not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paredown.formats.stored.section import damaged, refuse_others, unsupported
from paredown.spec.kv import KVDType, KVFormat

STATIC_INT = (
    "keys and values with static scales are asked for; integer pages find a scale for each token"
)
FP8 = "fp8 keys and values are asked for; they are kept in bf16"
_READ = {"num_bits", "type", "symmetric", "strategy", "dynamic", "observer", "observer_kwargs"}
_READ |= {"zp_dtype", "scale_dtype", "group_size"}
# Pages and their scales are symmetric; what the library calls others is refused by name.
_STRATEGIES = ("tensor", "attn_head", "token")
_PAGES: dict[int, KVDType] = {8: "int8", 4: "int4"}
_DYNAMIC = {"type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
_STATIC = {"num_bits": 8, "symmetric": True, "strategy": "tensor", "dynamic": False}
# As config.json says it.
KV_SCHEMES: dict[KVFormat, dict[str, object]] = {
    "int8": {"num_bits": 8, **_DYNAMIC},
    "int4": {"num_bits": 4, **_DYNAMIC},
    "int8-static": {"type": "int", **_STATIC},
    "fp8-static": {"type": "float", **_STATIC},
}


@dataclass(frozen=True, kw_only=True)
class KVScheme:
    """`dtype` is that of our pages, None for the default. `tensors`: regular expressions for names
    of the scales that come along. `section` is what config.json says, None where it says
    nothing."""

    dtype: KVDType | None = None
    notes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    section: Mapping[str, object] | None = None


NO_SCHEME = KVScheme()


def parse_kv_scheme(scheme: object) -> KVScheme:
    """Raises UnsupportedError or CheckpointError for what is not symmetric int8, int4 or
    fp8."""
    if scheme is None:
        return NO_SCHEME
    where = "kv_cache_scheme"
    if not isinstance(scheme, Mapping):
        raise damaged(where, scheme)
    refuse_others(scheme, _READ, f"{where}.")
    kind = str(scheme.get("type", "int")).lower()
    dynamic = scheme.get("dynamic", False)
    strategy = str(scheme.get("strategy") or "tensor").lower()
    bits = scheme.get("num_bits", 8)
    is_known = (kind, bits) in (("int", 8), ("int", 4), ("float", 8))
    if not is_known or scheme.get("symmetric", True) is not True or strategy not in _STRATEGIES:
        raise unsupported(where, scheme, "Known are symmetric int8, int4 and fp8.")
    if not isinstance(dynamic, bool):
        raise damaged(f"{where}.dynamic", dynamic)
    tensors = () if dynamic else (r".*\.self_attn\.[kv]_scale",)
    if kind == "float":
        return KVScheme(notes=(FP8,), tensors=tensors, section=scheme)
    notes = () if dynamic else (STATIC_INT,)
    return KVScheme(dtype=_PAGES[int(bits)], notes=notes, tensors=tensors, section=scheme)
