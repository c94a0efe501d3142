"""GGUFRows: llama.cpp's names for a family, its sizes and its tensors in a GGUF file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from paredown.models.families.fields import Fields
from paredown.models.gguf.header import Value
from paredown.spec.model import ModelSpec

Metadata = dict[str, Value]

# Sizes of an architecture with rotary positions and RMSNorm: field of config.json -> metadata key
# after the architecture's name.
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
# The keys of architectures whose heads share the hidden columns.
PLAIN_KEYS: Mapping[str, str] = {name: key for name, key in KEYS.items() if name != "head_dim"}
LAYER_NORM_KEYS: Mapping[str, str] = {"layer_norm_eps": "attention.layer_norm_epsilon"}
# The keys of encoders with post-norm.
ENCODER_KEYS: Mapping[str, str] = {
    name: key
    for name, key in {**PLAIN_KEYS, **LAYER_NORM_KEYS}.items()
    if name not in ("num_key_value_heads", "rms_norm_eps")
}
# The number of token types, a key of tokenizers.
TOKEN_TYPES = "tokenizer.ggml.token_type_count"
LINEARS: Mapping[str, str] = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "router": "ffn_gate_inp",
    "experts.gate": "ffn_gate_exps",
    "experts.up": "ffn_up_exps",
    "experts.down": "ffn_down_exps",
    "shared_gate": "ffn_gate_inp_shexp",
    "shared.gate": "ffn_gate_shexp",
    "shared.up": "ffn_up_shexp",
    "shared.down": "ffn_down_shexp",
}
NORMS: Mapping[str, str] = {"attention_norm": "attn_norm", "mlp_norm": "ffn_norm"}
POST_NORMS: Mapping[str, str] = {
    "attention_sum_norm": "attn_output_norm",
    "mlp_sum_norm": "layer_output_norm",
}


def turned_share(fields: Fields, arch: str, config: Mapping[str, object]) -> float:
    """Returns the share of a head that is rotated, from the column count in the metadata."""
    hidden_size, num_heads = config["hidden_size"], config["num_attention_heads"]
    assert isinstance(hidden_size, int)
    assert isinstance(num_heads, int)
    head_dim = max(1, hidden_size // num_heads)
    num_columns = fields.integer(f"{arch}.rope.dimension_count", head_dim)
    share = num_columns / head_dim
    return share if int(head_dim * share) == num_columns else (num_columns + 0.5) / head_dim


def check_whole_turns(fields: Fields, arch: str, config: Mapping[str, object]) -> None:
    """Raises CheckpointError where an architecture that rotates whole heads is to rotate a part."""
    if turned_share(fields, arch, config) != 1:
        raise fields.wrong(f"{arch}.rope.dimension_count", "the columns of a head")


def _nothing_more(fields: Fields, config: Mapping[str, object]) -> dict[str, object]:
    return {}


def _no_metadata(spec: ModelSpec) -> Metadata:
    return {}


@dataclass(frozen=True, kw_only=True)
class GGUFRows:
    """The GGUF side of a family. Among families with the same `architecture`, reading picks the
    first in the table; a file with experts gets the first that has experts.

    `class_name`  of the model in Transformers
    `keys`        field of config.json -> metadata key behind the architecture's name
    `linears`     linear role, of experts by its kind, or role of a router -> what its tensors are
                  called in a layer
    `norms`       norm role -> what its tensors are called in a layer
    `told_by`     field of config.json -> linear role whose bias in the file says that it is true
    `is_paired`   whether rows of q and k are stored as 0, d/2, 1, d/2 + 1, ... of each head: rotary
                  positions rotate neighbours there, and halves of a head here
    `takes_bias`  whether llama.cpp adds the biases of the attention
    `norm_offset` what a file adds to the weights of the layers' norms and the last norm: Gemma
                  stores them minus one in a folder and whole in a file
    `output`      whether llama.cpp expects a separate output layer, one tied to the embedding, or
                  either
    `takes_longrope`  whether llama.cpp reads LongRoPE's factors
    `has_experts` whether every layer has experts
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
    output: Literal["either", "own", "tied"] = "either"
    takes_longrope: bool = False
    has_experts: bool = False
    more_config: Callable[[Fields, Mapping[str, object]], dict[str, object]] = _nothing_more
    more_metadata: Callable[[ModelSpec], Metadata] = _no_metadata
