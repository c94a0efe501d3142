"""Writes a checkpoint as a GGUF file that llama.cpp and OpenVINO GenAI read.

One tensor at a time is in memory. What llama.cpp wants otherwise than Hugging Face: for the llama
architecture the rows of q and k in pairs (its rotary positions turn neighbours, not halves), and
the llama3 scaling of rotary positions as a tensor of factors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
import numpy.typing as npt

from benchmarks.checkpoints.tokenizer import Vocabulary
from paredown.models.checkpoint import Checkpoint
from paredown.models.roles import layer_vectors
from paredown.spec.model import ModelSpec, Rotary

TensorFormat = Literal["bf16", "f16", "q8_0", "q4_0", "f32"]
Values = npt.NDArray[np.float32]

TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}
FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "bf16": gguf.LlamaFileType.MOSTLY_BF16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
}
# GGUF's names, by our roles; a block is a layer.
LINEARS = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
NORMS = {"attention_norm": "attn_norm", "mlp_norm": "ffn_norm"}
PRE_TOKENIZERS = {"llama": "gpt-2", "qwen2": "qwen2"}
CHUNK_VALUES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class GGUFFormat:
    """Formats of the linear layers, of the output layer and of the table of embeddings. Tied
    embeddings are written once where both are the same, else as two tensors."""

    linear: TensorFormat
    output: TensorFormat
    embedding: TensorFormat


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    """A tensor to be written: its values are read when their turn comes."""

    name: str
    format: TensorFormat
    shape: tuple[int, ...]
    role: str
    layer: int | None = None


def write_gguf(
    checkpoint: Checkpoint, vocabulary: Vocabulary, path: Path, formats: GGUFFormat
) -> None:
    """Writes `path`, which appears when it is whole."""
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, checkpoint.spec.family)
    _add_metadata(writer, checkpoint, formats)
    _add_tokenizer(writer, checkpoint, vocabulary)
    tensors = list(_tensors(checkpoint.spec, formats))
    for tensor in tensors:
        kind = TYPES[tensor.format]
        byte_shape = gguf.quant_shape_to_byte_shape(tensor.shape, kind)
        num_bytes = int(np.prod(byte_shape))
        # The writer takes the shape in bytes for all but its own float types.
        plain = tensor.format in ("f32", "f16")
        dtype = {"f32": np.float32, "f16": np.float16}.get(tensor.format, np.uint8)
        shape = tensor.shape if plain else byte_shape
        writer.add_tensor_info(tensor.name, shape, np.dtype(dtype), num_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(_encode(_values(checkpoint, tensor), tensor.format))
    writer.close()
    partial.rename(path)


def permute_rows(values_OI: Values, num_heads: int) -> Values:
    """Rows of each head from halves to neighbours: 0, d/2, 1, d/2 + 1, ..."""
    num_rows, num_columns = values_OI.shape
    halves = values_OI.reshape(num_heads, 2, num_rows // num_heads // 2, num_columns)
    return halves.swapaxes(1, 2).reshape(num_rows, num_columns)


def rope_factors(spec: ModelSpec) -> Values | None:
    """What llama.cpp divides each plain frequency by; None where all are one."""
    assert isinstance(spec.positions, Rotary)
    if spec.positions.scaling == "none":
        return None
    scaled = spec.positions.inverse_frequencies(spec.head_dim)
    plain = Rotary(theta=spec.positions.theta).inverse_frequencies(spec.head_dim)
    factors: Values = (np.array(plain) / np.array(scaled)).astype(np.float32)
    return factors


def _add_metadata(writer: gguf.GGUFWriter, checkpoint: Checkpoint, formats: GGUFFormat) -> None:
    spec = checkpoint.spec
    assert isinstance(spec.positions, Rotary)
    writer.add_name(checkpoint.path.name)
    writer.add_file_type(FILE_TYPES[formats.linear])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(spec.max_positions)
    writer.add_embedding_length(spec.hidden_size)
    writer.add_block_count(spec.num_layers)
    writer.add_feed_forward_length(spec.intermediate_size)
    writer.add_head_count(spec.num_heads)
    writer.add_head_count_kv(spec.num_kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.positions.theta)
    writer.add_layer_norm_rms_eps(spec.norm_eps)
    writer.add_vocab_size(spec.vocab_size)


def _add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Checkpoint, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZERS[checkpoint.spec.family])
    writer.add_token_list(vocabulary.tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    special = vocabulary.special
    writer.add_token_types(
        [control if i in special else normal for i in range(len(vocabulary.tokens))]
    )
    writer.add_token_merges([" ".join(pair) for pair in vocabulary.merges])
    config = checkpoint.config
    bos_token_id, eos_token_id = config["bos_token_id"], config["eos_token_id"]
    assert isinstance(bos_token_id, int)
    assert isinstance(eos_token_id, int)
    writer.add_bos_token_id(bos_token_id)
    writer.add_eos_token_id(eos_token_id)
    writer.add_add_bos_token(False)


def _tensors(spec: ModelSpec, formats: GGUFFormat) -> Iterator[_Tensor]:
    table = (spec.vocab_size, spec.hidden_size)
    hidden = (spec.hidden_size,)
    yield _Tensor(name="token_embd.weight", format=formats.embedding, shape=table, role="embedding")
    if not spec.tied_embeddings or formats.output != formats.embedding:
        yield _Tensor(name="output.weight", format=formats.output, shape=table, role="output")
    yield _Tensor(name="output_norm.weight", format="f32", shape=hidden, role="final_norm.weight")
    if (factors := rope_factors(spec)) is not None:
        yield _Tensor(name="rope_freqs.weight", format="f32", shape=factors.shape, role="rope")
    for layer in range(spec.num_layers):
        for role, shape in spec.linear_shapes().items():
            name = f"blk.{layer}.{LINEARS[role]}.weight"
            yield _Tensor(name=name, format=formats.linear, shape=shape, role=role, layer=layer)
        for role, size in layer_vectors(spec).items():
            owner, suffix = role.rsplit(".", 1)
            name = f"blk.{layer}.{(NORMS | LINEARS)[owner]}.{suffix}"
            yield _Tensor(name=name, format="f32", shape=(size,), role=role, layer=layer)


def _values(checkpoint: Checkpoint, tensor: _Tensor) -> Values:
    spec = checkpoint.spec
    if tensor.role == "rope":
        factors = rope_factors(spec)
        assert factors is not None
        return factors
    if tensor.role == "embedding":
        return _floats(checkpoint, checkpoint.names.embedding)
    if tensor.role == "output":
        tied = spec.tied_embeddings
        return _floats(checkpoint, checkpoint.names.embedding if tied else checkpoint.names.output)
    if tensor.role not in LINEARS:
        vector = checkpoint.vector(tensor.role, tensor.layer)
        assert vector is not None, tensor.role
        return vector
    assert tensor.layer is not None
    values = _floats(checkpoint, checkpoint.linear_name(tensor.role, tensor.layer))
    if spec.family == "llama" and tensor.role in ("q", "k"):
        num_heads = spec.num_heads if tensor.role == "q" else spec.num_kv_heads
        return permute_rows(values, num_heads)
    return values


def _floats(checkpoint: Checkpoint, module: str) -> Values:
    return checkpoint.tensors[f"{module}.weight"].to_float32()


def _encode(values: Values, kind: TensorFormat) -> npt.NDArray[np.generic]:
    """In chunks of rows: the quantizers of gguf make several temporaries."""
    chunk_rows = max(1, CHUNK_VALUES // max(values.shape[1:], default=1))
    parts = [
        gguf.quantize(values[start : start + chunk_rows], TYPES[kind])
        for start in range(0, len(values), chunk_rows)
    ]
    return np.concatenate(parts)
