"""Converts a model to GGUF metadata, where llama.cpp runs the same model from them."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

import numpy as np
import numpy.typing as npt

from paredown.errors import CheckpointError, UnsupportedError
from paredown.models.config import spec_from_config
from paredown.models.families.gguf_rows import GGUFRows, Metadata
from paredown.models.families.table import FAMILIES, OTHER_ARCHITECTURES
from paredown.models.gguf.config import ARCHITECTURE, config_from_metadata
from paredown.models.gguf.head import POOLING, POOLINGS, RANK
from paredown.models.gguf.names import (
    EMBEDDING,
    HEADS,
    LONG_FACTORS,
    OUTPUT,
    ROPE_FACTORS,
    SHORT_FACTORS,
)
from paredown.models.gguf.rope import rope_factors
from paredown.models.gguf.rope_scaling import scaling_metadata
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec


def metadata_from_spec(spec: ModelSpec) -> Metadata:
    """Returns the metadata. Raises UnsupportedError for a model that llama.cpp's architectures
    cannot express: reading the metadata back must give the same model."""
    rows = _rows(spec)
    if any(layer.has_experts != rows.has_experts for layer in spec.layers):
        raise _unsupported("experts in some layers alone")
    is_tied = spec.is_tied
    if rows.output != "either" and is_tied != (rows.output == "tied"):
        raise _unsupported(
            f"an output layer {'tied to the embedding' if is_tied else 'of its own'}"
        )
    metadata = _metadata(spec, rows)
    try:
        again = _read_back(spec, rows, metadata)
    except (CheckpointError, UnsupportedError) as error:
        raise _unsupported(f"{error.what} ({error.seen})") from error
    different = next(_differences(replace(spec, head=None), again, ""), None)
    if different is not None:
        raise _unsupported(different)
    return metadata | _head_metadata(spec, rows)


def _rows(spec: ModelSpec) -> GGUFRows:
    """Returns the rows of the architecture that the model goes by."""
    others = [one.gguf for one in OTHER_ARCHITECTURES if one.model_type == spec.family]
    rows = FAMILIES[spec.family].gguf
    if others and not spec.is_causal:
        rows = others[0]
    if rows is None:
        raise _unsupported(f"the family {spec.family}")
    return rows


def _head_metadata(spec: ModelSpec, rows: GGUFRows) -> Metadata:
    """Returns the pooling of an encoder, or of a classifier with llama.cpp's two layers. The names
    of its labels are not known here."""
    head, key = spec.head, f"{rows.architecture}.{POOLING}"
    if head is None:
        return {}
    if head.kind == "classification" and len(head.steps) == len(HEADS["classification"]):
        return {key: np.uint32(RANK)}
    known = {(kind,): number for number, kind in POOLINGS.items()}
    if head.kind != "embedding" or head.steps_by_role() or head.pooling not in known:
        raise _unsupported(f"its head: {head.kind}, pooling {', '.join(head.pooling) or 'none'}")
    return {key: np.uint32(known[head.pooling])}


def factors_of(spec: ModelSpec) -> dict[str, npt.NDArray[np.float32]]:
    """Returns by name the tensors of factors that divide rotary frequencies; it is empty where none
    is needed."""
    rotary, head_dim = spec.layers[0].attention.rotary, spec.layers[0].attention.head_dim
    if rotary is None:
        return {}
    if rotary.scaling == "longrope":
        return {
            SHORT_FACTORS: np.array(rotary.short_factors, np.float32),
            LONG_FACTORS: np.array(rotary.long_factors, np.float32),
        }
    factors = rope_factors(rotary, head_dim)
    return {} if factors is None else {ROPE_FACTORS: factors}


def _metadata(spec: ModelSpec, rows: GGUFRows) -> Metadata:
    layer, arch = spec.layers[0], rows.architecture
    attention = layer.attention
    values = {
        "max_position_embeddings": np.uint32(spec.max_positions),
        "hidden_size": np.uint32(spec.hidden_size),
        "num_hidden_layers": np.uint32(spec.num_layers),
        "intermediate_size": np.uint32(layer.mlp.size),
        "num_attention_heads": np.uint32(attention.num_heads),
        "num_key_value_heads": np.uint32(attention.num_kv_heads),
        "head_dim": np.uint32(attention.head_dim),
        "rms_norm_eps": np.float32(spec.last_norm.eps),
        "layer_norm_eps": np.float32(spec.last_norm.eps),
    }
    found: Metadata = {ARCHITECTURE: arch, f"{arch}.vocab_size": np.uint32(spec.vocab_size)}
    if layer.experts is not None:
        found |= _expert_metadata(layer.experts, arch)
    found |= {f"{arch}.{rows.keys[name]}": one for name, one in values.items() if name in rows.keys}
    if "head_dim" in rows.keys:
        found[f"{arch}.attention.value_length"] = np.uint32(attention.head_dim)
    return found | _rotary_metadata(spec, arch) | rows.more_metadata(spec)


def _expert_metadata(experts: Experts, arch: str) -> Metadata:
    found: Metadata = {
        f"{arch}.expert_count": np.uint32(experts.num),
        f"{arch}.expert_used_count": np.uint32(experts.num_per_token),
        f"{arch}.expert_feed_forward_length": np.uint32(experts.size),
    }
    if experts.shared_size is not None:
        found[f"{arch}.expert_shared_feed_forward_length"] = np.uint32(experts.shared_size)
    return found


def _rotary_metadata(spec: ModelSpec, arch: str) -> Metadata:
    """Returns the rotary metadata of the layers without a window. The bases of the others are fixed
    by the architecture or stored in the family's keys."""
    turned = [one.attention for one in spec.layers if one.attention.rotary is not None]
    if not turned:
        return {}
    widest = max(turned, key=lambda one: one.window or math.inf)
    rotary, head_dim = widest.rotary, widest.head_dim
    assert rotary is not None
    found: Metadata = {
        f"{arch}.rope.dimension_count": np.uint32(rotary.rotated_columns(head_dim)),
        f"{arch}.rope.freq_base": np.float32(rotary.theta),
    }
    return found | scaling_metadata(rotary, arch)


def _read_back(spec: ModelSpec, rows: GGUFRows, metadata: Metadata) -> ModelSpec:
    """Returns the model that a file with these metadata is read as."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (spec.vocab_size, spec.hidden_size)}
    if spec.has_own_output:
        shapes[OUTPUT] = shapes[EMBEDDING]
    layer = spec.layers[0]
    for role in layer.linear_shapes(spec.hidden_size):
        if layer.has_bias(role) and (rows.takes_bias or role not in ("q", "k", "v", "o")):
            shapes[f"blk.0.{rows.linears[role]}.bias"] = (1,)
    return spec_from_config(config_from_metadata(metadata, shapes, factors_of(spec), "it"))


def _differences(one: object, other: object, name: str) -> Iterator[str]:
    """Yields each difference in the words of the spec."""
    if name.endswith("family") or one == other:
        return
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from _differences(mine, theirs, f"layer {number}")
    elif is_dataclass(one) and type(one) is type(other):
        for field in fields(one):
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            yield from _differences(mine, theirs, f"{name} {field.name}".strip())
    elif not _is_rounded(one, other):
        yield f"{name} of {one} would be {other}"


def _is_rounded(one: object, other: object) -> bool:
    """Returns whether two numbers are equal in float32, the file's precision."""
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.float32(one) == np.float32(other))
    return False


def _unsupported(problem: str) -> UnsupportedError:
    known = [name for name, family in FAMILIES.items() if family.gguf is not None]
    return UnsupportedError(
        "this model cannot be written as GGUF: llama.cpp would run another one",
        seen=problem,
        remedy=f"Written are {', '.join(known)}, as llama.cpp knows them.",
    )
