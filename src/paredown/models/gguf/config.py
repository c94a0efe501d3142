"""A GGUF file's metadata as the config.json of a Hugging Face folder, and back."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paredown.errors import UnsupportedError
from paredown.models.families.fields import Fields
from paredown.models.gguf.header import Value
from paredown.models.gguf.names import EMBEDDING, OUTPUT, ROPE_FACTORS
from paredown.models.gguf.rope import rotary_from_factors
from paredown.spec.model import ModelSpec, Rotary

ARCHITECTURE = "general.architecture"
BOS, EOS, EOT = (f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot"))
# Architectures there, and Transformers' classes.
CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# Our families, and what they are there.
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}


def config_from_metadata(
    metadata: Mapping[str, Value],
    shapes: Mapping[str, tuple[int, ...]],
    factors: npt.NDArray[np.float32] | None,
    where: str,
) -> dict[str, object]:
    """`shapes` of the tensors by their names there, `factors` those of ROPE_FACTORS. Raises
    CheckpointError for what is missing or wrong, UnsupportedError for what is not run here."""
    fields = Fields({key: plain_value(value) for key, value in metadata.items()}, where)
    arch = fields.text(ARCHITECTURE)
    if arch not in CLASSES:
        raise UnsupportedError(
            f"{where} is of an architecture that is not read here",
            seen=arch,
            remedy=f"Known architectures: {', '.join(CLASSES)}.",
        )
    fields.must_be("split.count", 1)
    fields.must_be(f"{arch}.expert_count", 0)
    hidden_size = fields.integer(f"{arch}.embedding_length")
    num_heads = fields.integer(f"{arch}.attention.head_count")
    head_dim = fields.optional_integer(f"{arch}.attention.key_length")
    head_dim = head_dim or max(1, hidden_size // num_heads)
    fields.must_be(f"{arch}.attention.value_length", head_dim)
    fields.must_be(f"{arch}.rope.dimension_count", head_dim)
    config: dict[str, object] = {
        "architectures": [CLASSES[arch]],
        "model_type": arch,
        "hidden_size": hidden_size,
        "intermediate_size": fields.integer(f"{arch}.feed_forward_length"),
        "num_hidden_layers": fields.integer(f"{arch}.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": fields.integer(f"{arch}.attention.head_count_kv", num_heads),
        "head_dim": head_dim,
        "max_position_embeddings": fields.integer(f"{arch}.context_length"),
        "rms_norm_eps": fields.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        "hidden_act": "silu",
        "tie_word_embeddings": OUTPUT not in shapes,
        "vocab_size": shapes.get(EMBEDDING, (0,))[0],
        **_rotary_fields(fields, arch, factors),
        **_token_ids(fields),
    }
    if arch != "qwen2":
        config["attention_bias"] = "blk.0.attn_q.bias" in shapes
    if arch == "llama":
        config["mlp_bias"] = "blk.0.ffn_up.bias" in shapes
    return config


def metadata_from_spec(spec: ModelSpec) -> dict[str, Value]:
    """Raises UnsupportedError for a model that llama.cpp's architectures cannot express."""
    check_expressible(spec)
    assert isinstance(spec.positions, Rotary)
    arch = ARCHITECTURES[spec.family]
    metadata: dict[str, Value] = {
        ARCHITECTURE: arch,
        f"{arch}.context_length": np.uint32(spec.max_positions),
        f"{arch}.embedding_length": np.uint32(spec.hidden_size),
        f"{arch}.block_count": np.uint32(spec.num_layers),
        f"{arch}.feed_forward_length": np.uint32(spec.intermediate_size),
        f"{arch}.attention.head_count": np.uint32(spec.num_heads),
        f"{arch}.attention.head_count_kv": np.uint32(spec.num_kv_heads),
        f"{arch}.attention.key_length": np.uint32(spec.head_dim),
        f"{arch}.attention.value_length": np.uint32(spec.head_dim),
        f"{arch}.attention.layer_norm_rms_epsilon": np.float32(spec.norm_eps),
        f"{arch}.rope.dimension_count": np.uint32(spec.head_dim),
        f"{arch}.rope.freq_base": np.float32(spec.positions.theta),
        f"{arch}.vocab_size": np.uint32(spec.vocab_size),
    }
    if spec.positions.scaling == "linear":
        metadata[f"{arch}.rope.scaling.type"] = "linear"
        metadata[f"{arch}.rope.scaling.factor"] = np.float32(spec.positions.factor)
    return metadata


def check_expressible(spec: ModelSpec) -> None:
    """Raises UnsupportedError, naming what llama.cpp's architectures have no like of."""
    problem = None
    if spec.family not in ARCHITECTURES:
        problem = f"the family {spec.family}"
    elif spec.activation != "silu":
        problem = f"the activation {spec.activation}"
    elif spec.sliding_window is not None and spec.sliding_window < spec.max_positions:
        problem = f"a sliding window of {spec.sliding_window} tokens"
    elif spec.family == "qwen3" and spec.qkv_bias:
        problem = "biases of the attention of qwen3"
    if problem is not None:
        raise UnsupportedError(
            "this model cannot be written as GGUF: llama.cpp would run another one",
            seen=problem,
            remedy=f"Written are {', '.join(ARCHITECTURES)} with silu and no sliding window.",
        )


def plain_value(value: Value) -> object:
    """The Python value; a float32 becomes the shortest decimal that stands for it, so that 1e-5 is
    1e-5 again."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def _rotary_fields(
    fields: Fields, arch: str, factors: npt.NDArray[np.float32] | None
) -> dict[str, object]:
    theta = fields.number(f"{arch}.rope.freq_base", 10_000.0)
    found: dict[str, object] = {"rope_theta": theta}
    kind = fields.text(f"{arch}.rope.scaling.type", "none")
    fields.must_be(f"{arch}.rope.scale_linear", 1.0)
    if kind == "linear":
        factor = fields.number(f"{arch}.rope.scaling.factor")
        found["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    elif kind != "none":
        raise UnsupportedError(
            f"{fields.where} asks for an unknown rotary scaling",
            seen=kind,
            remedy="Known scalings: none, linear, and Llama 3.1's as a tensor of factors.",
        )
    if factors is None:
        return found
    rotary = rotary_from_factors(theta, factors)
    if rotary.scaling == "llama3":
        if kind == "linear":
            raise UnsupportedError(
                f"{fields.where} scales rotary positions twice",
                seen=f"rope.scaling.type linear and {ROPE_FACTORS}",
                remedy="Use the model's Hugging Face folder.",
            )
        found["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": rotary.factor,
            "low_freq_factor": rotary.low_freq_factor,
            "high_freq_factor": rotary.high_freq_factor,
            "original_max_position_embeddings": rotary.original_max_positions,
        }
    return found


def _token_ids(fields: Fields) -> dict[str, object]:
    found: dict[str, object] = {}
    if fields.config.get(BOS) is not None:
        found["bos_token_id"] = fields.integer(BOS, minimum=0)
    ends = [fields.integer(key, minimum=0) for key in (EOS, EOT) if key in fields.config]
    if ends:
        found["eos_token_id"] = ends[0] if len(set(ends)) == 1 else ends
    return found
