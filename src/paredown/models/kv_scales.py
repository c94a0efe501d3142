"""The stored scales of keys and values: what static pages (spec/kv.py) of a checkpoint need.

compressed-tensors stores `k_scale` and `v_scale` beside the projections of an attention module: one
number for the layer ([1]), or one for each key-value head ([K, 1, 1]).
"""

import numpy as np

from paredown.errors import CheckpointError, ConfigError
from paredown.models.checkpoint import Checkpoint
from paredown.spec.kv import STATIC_KV_DTYPES, KVScales, KVSpec

_REMEDY = "Give --kv-dtype a format that finds its own scales (int8, fp8), or use another copy."


def used_kv_scales(checkpoint: Checkpoint, kv: KVSpec) -> dict[int, KVScales]:
    """Returns the scales by layer, for the layers that `kv` keeps with static scales.

    Raises ConfigError where the checkpoint's scales are for another format, or it has none, and
    CheckpointError for scales that are missing or damaged.
    """
    found = {}
    for layer, dtype in enumerate(kv.layer_dtypes(checkpoint.spec.num_layers)):
        if dtype not in STATIC_KV_DTYPES:
            continue
        if dtype != checkpoint.kv_dtype:
            raise ConfigError(
                f"{dtype} keys and values need scales that are stored with the checkpoint",
                seen=f"{checkpoint.path} has scales for {checkpoint.kv_dtype}"
                if checkpoint.kv_scales
                else f"{checkpoint.path} has none",
                remedy=f"Use {dtype.partition('-')[0]}, or compress with -kv-{dtype}.",
            )
        found[layer] = KVScales(
            keys=_scale(checkpoint, layer, "k"), values=_scale(checkpoint, layer, "v")
        )
    return found


def _scale(checkpoint: Checkpoint, layer: int, point: str) -> tuple[float, ...]:
    attention = checkpoint.linear_name("k", layer).rpartition(".")[0]
    name = f"{attention}.{point}_scale"
    if name not in checkpoint.kv_scales:
        raise CheckpointError(
            f"{checkpoint.path}: the scale {name!r} is missing",
            seen=f"kv_cache_scheme asks for {checkpoint.kv_dtype}",
            remedy=_REMEDY,
        )
    scale = checkpoint.kv_scales[name].to_float32().reshape(-1)
    num_heads = checkpoint.spec.layers[layer].attention.num_kv_heads
    if len(scale) not in (1, num_heads):
        raise CheckpointError(
            f"{checkpoint.path}: the scale {name!r} has the wrong shape",
            seen=f"{len(scale)} numbers",
            remedy=f"It has 1 number, or {num_heads}, one for each head.",
        )
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise CheckpointError(
            f"{checkpoint.path}: the scale {name!r} is not above 0",
            seen=", ".join(str(one) for one in scale[:4]),
            remedy=_REMEDY,
        )
    return tuple(np.broadcast_to(scale, num_heads).tolist())
