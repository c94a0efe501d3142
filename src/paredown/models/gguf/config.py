"""Converts a GGUF file's metadata to the config.json of a Hugging Face folder."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paredown.errors import UnsupportedError
from paredown.models.families.family import Family
from paredown.models.families.fields import Fields
from paredown.models.families.gguf_rows import GGUFRows
from paredown.models.families.read_fields import ReadFields
from paredown.models.families.table import FAMILIES, OTHER_ARCHITECTURES
from paredown.models.gguf.header import Value
from paredown.models.gguf.names import (
    EMBEDDING,
    LONG_FACTORS,
    OUTPUT,
    ROPE_FACTORS,
    SHORT_FACTORS,
)
from paredown.models.gguf.rope import rotary_from_factors
from paredown.models.gguf.rope_scaling import longrope_fields, scaling_fields
from paredown.models.gguf.special_tokens import BOS, end_ids
from paredown.models.gguf.unread_keys import check_unread

ARCHITECTURE = "general.architecture"
# The kind of file: a model, an adapter, an importance matrix, or a vision part.
KIND = "general.type"
TOKENS = "tokenizer.ggml.tokens"
# The sizes that are floats; all others are integers.
_NUMBERS = ("rms_norm_eps", "layer_norm_eps")


def config_from_metadata(
    metadata: Mapping[str, Value],
    shapes: Mapping[str, tuple[int, ...]],
    factors: Mapping[str, npt.NDArray[np.float32]],
    where: str,
) -> dict[str, object]:
    """Returns the config. `shapes` holds the tensors by their names in the file, and `factors`
    those tensors of ALL_FACTORS that exist. Raises CheckpointError for missing or wrong values, and
    UnsupportedError for what we do not run."""
    values = ReadFields({key: plain_value(value) for key, value in metadata.items()})
    fields = Fields(values, where)
    _check_kind(fields)
    arch = fields.text(ARCHITECTURE)
    family = _family_of(fields, arch)
    rows = family.gguf
    assert rows is not None
    config: dict[str, object] = {
        "architectures": [rows.class_name],
        "model_type": family.model_type,
        **_sizes(fields, rows),
        "hidden_act": "silu",
        "tie_word_embeddings": OUTPUT not in shapes,
        "vocab_size": shapes.get(EMBEDDING, (0,))[0],
        **_rotary_fields(fields, rows, factors),
        **_token_ids(fields),
    }
    for name, role in rows.told_by.items():
        config[name] = f"blk.0.{rows.linears[role]}.bias" in shapes
    config |= rows.more_config(fields, config)
    check_unread(values, arch, where)
    return config


def _check_kind(fields: Fields) -> None:
    kind = fields.text(KIND, "model")
    if kind != "model":
        raise UnsupportedError(
            f"{fields.where} holds no model of its own",
            seen=f"{KIND} {kind}",
            remedy="Name the file of the model that it belongs to.",
        )


def family_of(metadata: Mapping[str, Value], where: str) -> Family:
    """Returns the family of a file's architecture, with the rows of that architecture. Raises
    UnsupportedError for an unknown one."""
    fields = Fields({key: plain_value(value) for key, value in metadata.items()}, where)
    return _family_of(fields, fields.text(ARCHITECTURE))


def _family_of(fields: Fields, arch: str) -> Family:
    """Returns the first family of that architecture, or the first with experts where the file has
    some."""
    known = {
        (one.gguf.architecture, one.gguf.has_experts): one
        for one in reversed((*FAMILIES.values(), *OTHER_ARCHITECTURES))
        if one.gguf
    }
    names = {name for name, _ in known}
    if arch not in names:
        raise UnsupportedError(
            f"{fields.where} is of an architecture that is not read here",
            seen=arch,
            remedy=f"Known architectures: {', '.join(sorted(names))}.",
        )
    num_experts = fields.integer(f"{arch}.expert_count", 0, minimum=0)
    if (arch, num_experts > 0) not in known:
        raise UnsupportedError(
            f"{fields.where} is of an architecture that is read "
            + ("without experts alone" if num_experts else "with experts alone"),
            seen=f"{arch}.expert_count {num_experts}",
            remedy="Use the model's Hugging Face folder.",
        )
    return known[arch, num_experts > 0]


def _sizes(fields: Fields, rows: GGUFRows) -> dict[str, object]:
    """Returns the numeric fields of config.json. The metadata may omit the heads' size."""
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
    if "head_dim" not in rows.keys:
        _check_whole_heads(fields, rows)
    return found


def _check_whole_heads(fields: Fields, rows: GGUFRows) -> None:
    """Checks that heads divide the hidden columns evenly, for an architecture without a head
    size."""
    arch = rows.architecture
    hidden_size, num_heads = (
        fields.integer(f"{arch}.{rows.keys[name]}")
        for name in ("hidden_size", "num_attention_heads")
    )
    for name in ("key_length", "value_length"):
        fields.must_be(f"{arch}.attention.{name}", max(1, hidden_size // num_heads))


def _head_dim(fields: Fields, rows: GGUFRows) -> int:
    arch = rows.architecture
    hidden_size = fields.integer(f"{arch}.{rows.keys['hidden_size']}")
    num_heads = fields.integer(f"{arch}.{rows.keys['num_attention_heads']}")
    head_dim = fields.optional_integer(f"{arch}.{rows.keys['head_dim']}")
    head_dim = head_dim or max(1, hidden_size // num_heads)
    fields.must_be(f"{arch}.attention.value_length", head_dim)
    fields.must_be(f"{arch}.rope.dimension_count", head_dim)
    return head_dim


def plain_value(value: Value) -> object:
    """Returns the Python value. A float32 becomes the shortest decimal that rounds to it, so that
    1e-5 stays 1e-5."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def _rotary_fields(
    fields: Fields, rows: GGUFRows, factors: Mapping[str, npt.NDArray[np.float32]]
) -> dict[str, object]:
    arch = rows.architecture
    theta = fields.number(f"{arch}.rope.freq_base", 10_000.0)
    found: dict[str, object] = {"rope_theta": theta}
    if rows.takes_longrope and (SHORT_FACTORS in factors or LONG_FACTORS in factors):
        return found | {"rope_scaling": longrope_fields(fields, arch, factors)}
    scaling = scaling_fields(fields, arch)
    if scaling is not None:
        found["rope_scaling"] = scaling
    others = factors.keys() - {ROPE_FACTORS}
    if others:
        raise UnsupportedError(
            f"{fields.where} scales rotary positions as its architecture does not",
            seen=min(others),
            remedy="Use the model's Hugging Face folder.",
        )
    if ROPE_FACTORS not in factors:
        return found
    rotary = rotary_from_factors(theta, factors[ROPE_FACTORS])
    if rotary.scaling == "llama3":
        if scaling is not None:
            raise UnsupportedError(
                f"{fields.where} scales rotary positions twice",
                seen=f"rope.scaling.type {scaling['rope_type']} and {ROPE_FACTORS}",
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
