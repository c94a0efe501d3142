"""GGUFRows: what llama.cpp calls a family, its sizes and its tensors in a GGUF file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paredown.models.families.fields import Fields
from paredown.models.gguf.header import Value
from paredown.spec.model import ModelSpec

Metadata = dict[str, Value]

# Sizes of an architecture with rotary positions and RMSNorm: field of config.json -> metadata key
# behind the architecture's name.
KEYS: Mapping[str, str] = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
LINEARS: Mapping[str, str] = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
NORMS: Mapping[str, str] = {"attention_norm": "attn_norm", "mlp_norm": "ffn_norm"}


def _nothing_more(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    return {}


def _no_metadata(spec: ModelSpec) -> Metadata:
    return {}


@dataclass(frozen=True, kw_only=True)
class GGUFRows:
    """What llama.cpp calls a family. Of families with the same `architecture` the first in the
    table is the one that is read.

    `class_name`  of the model in Transformers
    `keys`        field of config.json -> metadata key behind the architecture's name
    `linears`     linear role -> what its tensors are called in a layer
    `norms`       norm role -> what its tensors are called in a layer
    `told_by`     field of config.json -> linear role whose bias in the file says that it is true
    `is_paired`   whether rows of q and k lie as 0, d/2, 1, d/2 + 1, ... of each head, because
                  rotary positions turn neighbours there and halves of a head here
    `takes_bias`  whether llama.cpp adds the biases of the attention
    `norm_offset` what the norms of the layers and the last one are stored with on top: Gemma's
                  are less one in a folder and whole in a file
    `more_config` fields of config.json that follow from the metadata and the fields read so far
    `more_metadata`  what of a spec those fields are read from
    """

    architecture: str
    class_name: str
    keys: Mapping[str, str] = field(default_factory=lambda: KEYS)
    linears: Mapping[str, str] = field(default_factory=lambda: LINEARS)
    norms: Mapping[str, str] = field(default_factory=lambda: NORMS)
    told_by: Mapping[str, str] = field(default_factory=dict)
    is_paired: bool = False
    takes_bias: bool = True
    norm_offset: float = 0.0
    more_config: Callable[[Fields, Mapping[str, object]], dict[str, object]] = _nothing_more
    more_metadata: Callable[[ModelSpec], Metadata] = _no_metadata
