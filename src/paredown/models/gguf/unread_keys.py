"""Handles keys of a file that no reader asked for: it ignores, notes or refuses them.

llama.cpp has one list of keys for all architectures (`gguf.constants.Keys` of its Python package).
An unread key of that list with more than its neutral value would mean another model.
"""

import math
from collections.abc import Mapping

from paredown.errors import UnsupportedError
from paredown.models.families.fields import Fields
from paredown.models.families.read_fields import ReadFields

# Keys that never change a result.
HARMLESS = frozenset(
    {
        # The tensors have these sizes.
        "vocab_size", "embedding_length_out", "classifier.output_labels",
        # How the file was made.
        "tensor_data_layout", "rope.scaling.finetuned",
        # Read only where the type of the scaling or of the norms uses them.
        "rope.scaling.type", "rope.scaling.original_context_length", "attention.layer_norm_epsilon",
        # For text embeddings.
        "pooling_type",
        # llama.cpp divides by this now and then where 16 bits would overflow.
        "rescale_every_n_layers",
    }
)  # fmt: skip
# Values that mean the same as an absent key. For other keys of the list these are empty, zero and
# false.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.output_scale": (0, 1),
    "attention.value_residual_mix_lora_rank": (0,),
    "embedding_scale": (0, 1),
    "expert_group_count": (0, 1),
    "expert_weights_scale": (0, 1),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "rope.scaling.attn_factor": (1,),
    "rope.scaling.alpha": (0, 1),
    "rope.scaling.yarn_attn_factor": (1,),
    "rope.scaling.yarn_ext_factor": (0, 1),
}
# The precision of scales, which are float32.
_TOLERANCE = 1e-5
# Only YaRN uses these.
_YARN = ("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow")
# The rest of llama.cpp's list, by the beginning of the key.
CHANGING = (
    "activation_sparsity", "altup.", "attention.", "attn_logit_softcapping", "block_count",
    "context_length", "convnext.", "decoder_", "embedding_length", "expert", "features_length",
    "feed_forward_length", "final_logit_softcapping", "full_attention_interval", "interleave_",
    "kda.", "leading_dense_block_count", "moe_", "n_deepstack_layers", "nextn_predict_layers",
    "posnet.", "rope.", "router_logit_softcapping", "shortconv.", "ssm.", "swiglu_clamp",
    "swin_norm", "time_", "token_shift_count", "use_parallel_residual", "wkv.",
)  # fmt: skip


def check_unread(values: ReadFields, arch: str, where: str) -> None:
    """Raises UnsupportedError for an unread key of the architecture that would change the
    arithmetic. Keys outside llama.cpp's list are ignored, as in llama.cpp."""
    fields = Fields(values, where)
    unread = [key for key in values.unread() if key.startswith(f"{arch}.")]
    for full in unread:
        key = full.removeprefix(f"{arch}.")
        if not _changes(fields, arch, key):
            continue
        raise UnsupportedError(
            f"{where} sets {full!r}, which is not applied to this architecture here",
            seen=values[full],
            remedy="Use the model's Hugging Face folder, or choose another file.",
        )


def _changes(fields: Fields, arch: str, key: str) -> bool:
    value = fields.config[f"{arch}.{key}"]
    if key in HARMLESS or key in _YARN:
        return False
    if key == "attention.scale":
        if value == 0.0:
            return False
        scale = fields.number(f"{arch}.{key}")
        return not math.isclose(scale * math.sqrt(_head_dim(fields, arch)), 1, rel_tol=_TOLERANCE)
    if key == "attention.sliding_window" and isinstance(value, int):
        # A window of the whole context hides nothing.
        return 0 < value < fields.integer(f"{arch}.context_length")
    if key.startswith("expert") and not fields.config.get(f"{arch}.expert_count"):
        return False
    if key in NEUTRAL:
        return value not in NEUTRAL[key]
    return key.startswith(CHANGING) and bool(value)


def _head_dim(fields: Fields, arch: str) -> int:
    found = fields.optional_integer(f"{arch}.attention.key_length")
    heads = fields.integer(f"{arch}.attention.head_count")
    return found or max(1, fields.integer(f"{arch}.embedding_length") // heads)
