"""compressed-tensors' kv_cache_scheme: how a checkpoint asks for keys and values to be kept.

In dynamic formats our pages find a scale for every token and head as it comes (spec/kv.py). In
static formats the scales are k_scale and v_scale of an attention module (models/kv_scales.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paredown.formats.stored.section import damaged, refuse_others, unsupported
from paredown.spec.kv import KVDType, KVFormat

STATIC_INT4 = (
    "int4 keys and values with static scales are asked for; int4 pages find a scale for each token"
)
_READ = {"num_bits", "type", "symmetric", "strategy", "dynamic", "observer", "observer_kwargs"}
_READ |= {"zp_dtype", "scale_dtype", "group_size"}
# Pages and their scales are symmetric; the library's other strategies are refused by name.
_STRATEGIES = ("tensor", "attn_head", "token")
# The format by type, bits, and whether scales are dynamic.
_PAGES: dict[tuple[str, object, bool], KVDType] = {
    ("int", 8, True): "int8",
    ("int", 4, True): "int4",
    ("float", 8, True): "fp8",
    ("int", 8, False): "int8-static",
    ("int", 4, False): "int4",
    ("float", 8, False): "fp8-static",
}
_DYNAMIC = {"symmetric": True, "strategy": "token", "dynamic": True}
_STATIC = {"num_bits": 8, "symmetric": True, "strategy": "tensor", "dynamic": False}
# The schemes as config.json states them.
KV_SCHEMES: dict[KVFormat, dict[str, object]] = {
    "int8": {"num_bits": 8, "type": "int", **_DYNAMIC},
    "int4": {"num_bits": 4, "type": "int", **_DYNAMIC},
    "fp8": {"num_bits": 8, "type": "float", **_DYNAMIC},
    "int8-static": {"type": "int", **_STATIC},
    "fp8-static": {"type": "float", **_STATIC},
}


@dataclass(frozen=True, kw_only=True)
class KVScheme:
    """`dtype` is the format of our pages, None for the default. `tensors` are regular expressions
    for the names of stored scales. `section` is the scheme in config.json, None if it has none."""

    dtype: KVDType | None = None
    notes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    section: Mapping[str, object] | None = None


NO_SCHEME = KVScheme()


def parse_kv_scheme(scheme: object) -> KVScheme:
    """Parses the scheme. Raises UnsupportedError or CheckpointError unless it is symmetric int8,
    int4 or fp8."""
    if scheme is None:
        return NO_SCHEME
    where = "kv_cache_scheme"
    if not isinstance(scheme, Mapping):
        raise damaged(where, scheme)
    refuse_others(scheme, _READ, f"{where}.")
    kind = str(scheme.get("type", "int")).lower()
    dynamic = scheme.get("dynamic", False)
    strategy = str(scheme.get("strategy") or "tensor").lower()
    if not isinstance(dynamic, bool):
        raise damaged(f"{where}.dynamic", dynamic)
    bits = scheme.get("num_bits", 8)
    pages = _PAGES.get((kind, bits if isinstance(bits, int) else None, dynamic))
    is_symmetric = scheme.get("symmetric", True) is True
    # A static scale is by definition one for all tokens.
    is_known = strategy in _STRATEGIES and (dynamic or strategy != "token")
    if pages is None or not is_symmetric or not is_known:
        raise unsupported(where, scheme, "Known are symmetric int8, int4 and fp8.")
    tensors = () if dynamic else (r".*\.(self_attn|attn)\.[kv]_scale",)
    notes = (STATIC_INT4,) if pages == "int4" and not dynamic else ()
    return KVScheme(dtype=pages, notes=notes, tensors=tensors, section=scheme)
