"""A GGUF file's metadata as the config.json of a Hugging Face folder, and back."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paredown.errors import UnsupportedError
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gguf_rows import GGUFRows
from paredown.models.families.table import FAMILIES
from paredown.models.gguf.header import Value
from paredown.models.gguf.names import EMBEDDING, OUTPUT, ROPE_FACTORS
from paredown.models.gguf.rope import rotary_from_factors
from paredown.models.gguf.special_tokens import BOS, end_ids
from paredown.spec.layer import LayerSpec
from paredown.spec.mlp import Mlp
from paredown.spec.model import ModelSpec
from paredown.spec.rotary import Rotary

ARCHITECTURE = "general.architecture"
TOKENS = "tokenizer.ggml.tokens"
# Numbers among the sizes, which are integers else.
_NUMBERS = ("rms_norm_eps",)


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
    family = _family_of(arch, where)
    rows = family.gguf
    assert rows is not None
    fields.must_be("split.count", 1)
    fields.must_be(f"{arch}.expert_count", 0)
    config: dict[str, object] = {
        "architectures": [rows.class_name],
        "model_type": family.model_type,
        **_sizes(fields, rows),
        "hidden_act": "silu",
        "tie_word_embeddings": OUTPUT not in shapes,
        "vocab_size": shapes.get(EMBEDDING, (0,))[0],
        **_rotary_fields(fields, arch, factors),
        **_token_ids(fields),
    }
    for name, role in rows.told_by.items():
        config[name] = f"blk.0.{rows.linears[role]}.bias" in shapes
    return config


def _family_of(arch: str, where: str) -> Family:
    known = {one.gguf.architecture: one for one in reversed(FAMILIES.values()) if one.gguf}
    if arch not in known:
        raise UnsupportedError(
            f"{where} is of an architecture that is not read here",
            seen=arch,
            remedy=f"Known architectures: {', '.join(sorted(known))}.",
        )
    return known[arch]


def _sizes(fields: Fields, rows: GGUFRows) -> dict[str, object]:
    """The fields of config.json that are numbers there. Heads may be left out of the metadata."""
    arch, found = rows.architecture, dict[str, object]()
    for name, key in rows.keys.items():
        full = f"{arch}.{key}"
        if name in _NUMBERS:
            found[name] = fields.number(full)
        elif name == "num_hidden_layers":
            found[name] = fields.num_layers(full)
        elif name == "num_key_value_heads":
            num_heads = fields.integer(f"{arch}.{rows.keys['num_attention_heads']}")
            found[name] = fields.integer(full, num_heads)
        elif name == "head_dim":
            found[name] = _head_dim(fields, rows)
        else:
            found[name] = fields.integer(full)
    return found


def _head_dim(fields: Fields, rows: GGUFRows) -> int:
    arch = rows.architecture
    hidden_size = fields.integer(f"{arch}.{rows.keys['hidden_size']}")
    num_heads = fields.integer(f"{arch}.{rows.keys['num_attention_heads']}")
    head_dim = fields.optional_integer(f"{arch}.{rows.keys['head_dim']}")
    head_dim = head_dim or max(1, hidden_size // num_heads)
    fields.must_be(f"{arch}.attention.value_length", head_dim)
    fields.must_be(f"{arch}.rope.dimension_count", head_dim)
    return head_dim


def metadata_from_spec(spec: ModelSpec) -> dict[str, Value]:
    """Raises UnsupportedError for a model that llama.cpp's architectures cannot express."""
    rows, layer, rotary = check_expressible(spec)
    arch, attention = rows.architecture, layer.attention
    assert isinstance(layer.mlp, Mlp)
    sizes: dict[str, Value] = {
        "max_position_embeddings": np.uint32(spec.max_positions),
        "hidden_size": np.uint32(spec.hidden_size),
        "num_hidden_layers": np.uint32(spec.num_layers),
        "intermediate_size": np.uint32(layer.mlp.size),
        "num_attention_heads": np.uint32(attention.num_heads),
        "num_key_value_heads": np.uint32(attention.num_kv_heads),
        "head_dim": np.uint32(attention.head_dim),
        "rms_norm_eps": np.float32(spec.final_norm.eps),
    }
    metadata: dict[str, Value] = {ARCHITECTURE: arch}
    for name, size in sizes.items():
        metadata[f"{arch}.{rows.keys[name]}"] = size
        if name == "head_dim":
            metadata[f"{arch}.attention.value_length"] = size
    metadata |= {
        f"{arch}.rope.dimension_count": np.uint32(attention.head_dim),
        f"{arch}.rope.freq_base": np.float32(rotary.theta),
        f"{arch}.vocab_size": np.uint32(spec.vocab_size),
    }
    if rotary.scaling == "linear":
        metadata[f"{arch}.rope.scaling.type"] = "linear"
        metadata[f"{arch}.rope.scaling.factor"] = np.float32(rotary.factor)
    return metadata


def check_expressible(spec: ModelSpec) -> tuple[GGUFRows, LayerSpec, Rotary]:
    """The family's rows, the layer that all layers are like, and its rotary positions. Raises
    UnsupportedError, naming what llama.cpp's architectures have no like of."""
    rows, layer = FAMILIES[spec.family].gguf, spec.layers[0]
    rotary = layer.attention.rotary
    problem = None
    if rows is None or rotary is None or not isinstance(layer.mlp, Mlp):
        problem = f"the family {spec.family}"
    elif layer.mlp.activation != "silu":
        problem = f"the activation {layer.mlp.activation}"
    elif spec.windows and spec.windows[0] < spec.max_positions:
        problem = f"a sliding window of {spec.windows[0]} tokens"
    elif not rows.takes_bias and layer.attention.qkv_bias:
        problem = f"biases of the attention of {spec.family}"
    elif len({_without_window(one) for one in spec.layer_counts}) > 1:
        problem = "layers of different sizes"
    else:
        return rows, layer, rotary
    known = [name for name, family in FAMILIES.items() if family.gguf is not None]
    raise UnsupportedError(
        "this model cannot be written as GGUF: llama.cpp would run another one",
        seen=problem,
        remedy=f"Written are {', '.join(known)} with silu and no sliding window.",
    )


def _without_window(layer: LayerSpec) -> LayerSpec:
    return replace(layer, attention=replace(layer.attention, window=None))


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
    # llama.cpp's own type is linear; the older name of the factor is as good as the new one.
    factor_key = f"{arch}.rope.scaling.factor"
    if factor_key not in fields.config:
        factor_key = f"{arch}.rope.scale_linear"
    factor = fields.number(factor_key, 1.0)
    kind = fields.text(f"{arch}.rope.scaling.type", "none" if factor == 1.0 else "linear")
    fields.must_be(f"{arch}.rope.scaling.attn_factor", 1.0)
    if kind == "linear":
        if factor != 1.0:
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
    tokens = fields.config.get(TOKENS)
    ends = end_ids(tokens, fields) if isinstance(tokens, list) else []
    if ends:
        found["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    return found
