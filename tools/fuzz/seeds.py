"""Makes small valid files as the starting inputs of fuzzing."""

import hashlib
import io
import json
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from paredown.formats.gguf.table import BLOCK_FORMATS
from paredown.formats.tensor import StoredTensor
from paredown.kernels.linear_source import LinearSource
from paredown.kernels.native_model import NativeModel
from paredown.kernels.packed_file import CHUNK_BYTES, Blob, write_packed_file
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.config import family_from_config, spec_from_config
from paredown.models.families.table import FAMILIES
from paredown.models.files.safetensors_header import build_header
from paredown.models.gguf.header import NewTensor, Value
from paredown.models.gguf.header import build_header as build_gguf_header
from paredown.models.gguf.metadata import metadata_from_spec
from paredown.models.gguf.names import gguf_tensors
from paredown.models.gguf.tokenizer import hugging_face_files
from paredown.models.names import Names
from paredown.spec.context import Context
from paredown.spec.kv import KVSpec

PACKED_KEY = "a key"
# The fixed part of a packed file: magic, byte order and version, two sizes, a digest.
_SIZES_OFFSET, _SIZES, _HEAD_BYTES = 16, struct.Struct("=QQ"), 64
LLAMA: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "vocab_size": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
# Sections of config.json that change how it is read.
_SCALINGS: tuple[dict[str, object], ...] = (
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
)
_QUANTIZATIONS: tuple[dict[str, object], ...] = (
    {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False,
     "dynamic": {"-:.*q_proj": {}}},
    {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True,
     "modules_to_not_convert": ["lm_head"]},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["re:.*head"],
     "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
         "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
         "group_size": 32}, "input_activations": None}}},
    {"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 1, "nbits_per_codebook": 16,
     "out_group_size": 1},
)  # fmt: skip


def configs() -> Sequence[bytes]:
    """Returns a config.json for each family and for each section."""
    found = [{**LLAMA, "model_type": family} for family in FAMILIES]
    found += [{**LLAMA, "rope_scaling": one} for one in _SCALINGS]
    found += [{**LLAMA, "quantization_config": one} for one in _QUANTIZATIONS]
    gpt2 = {"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 64}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_experts": 4}
    found += [{**gpt2, "vocab_size": 16}, {**LLAMA, "model_type": "mixtral", **experts}]
    return [json.dumps(one).encode() for one in found]


def safetensors() -> Sequence[bytes]:
    return [_safetensors({}), _safetensors({"format": "pt"}), (2).to_bytes(8, "little") + b"{}"]


def indices() -> Sequence[bytes]:
    """Returns an index of shards; the single file that it names lies beside it."""
    index = {
        "metadata": {"total_size": 76},
        "weight_map": {"a.weight": SHARD, "b.weight": SHARD, "c": SHARD},
    }
    return [json.dumps(index).encode()]


SHARD = "model-00001-of-00001.safetensors"


def shard() -> bytes:
    return _safetensors({})


def ggufs() -> Sequence[bytes]:
    """Returns a whole small model with each kind of tokenizer."""
    return [_gguf(kind) for kind in ("gpt2", "llama", "bert", "t5")]


def packed_files() -> Sequence[bytes]:
    """Returns the JSON entries of a packed file; the target adds the rest of the file."""
    return [json.dumps({"entries": [_entry(blob) for blob in packed_blobs()]}).encode()]


def packed_model() -> NativeModel:
    context = Context(spec=spec_from_config(LLAMA))
    return NativeModel(context, KVSpec(num_pages=2), ThreadPlan(prefill=1, decode=1))


def packed_blobs() -> list[Blob]:
    """Returns the blobs of a small model."""
    model = packed_model()
    spec = model.spec
    rng = np.random.default_rng(0)
    for role, rows, columns in (
        ("output", spec.vocab_size, 32), ("qkv", 64, 32), ("o", 32, 32), ("up", 64, 32),
        ("down", 32, 32),
    ):  # fmt: skip
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        source = LinearSource(
            kind="fp32", activations="fp32", group_size=columns, arrays={"values": values}
        )
        model.add_linear(role, 0, source)
    for role in ("attention_norm", "mlp_norm", "final_norm"):
        model.set_norm(role, 0, np.ones(32, np.float32), None)
    model.tie_embedding()
    model.check_weights()
    return model.packed()


def packed_bytes(blobs: Sequence[Blob]) -> bytes:
    """Returns the packed file of these blobs."""
    with TemporaryDirectory() as folder, (Path(folder) / "packed").open("w+b", buffering=0) as file:
        assert isinstance(file, io.FileIO)
        write_packed_file(file, PACKED_KEY, blobs, num_threads=1, go_on=lambda: True)
        file.seek(0)
        return file.readall()


def packed_heads() -> Sequence[bytes]:
    """Returns a packed file up to its payload."""
    data = packed_bytes(packed_blobs())
    table_bytes, num_chunks = _SIZES.unpack_from(data, _SIZES_OFFSET)
    return [data[: _HEAD_BYTES + table_bytes + 8 * num_chunks]]


def sealed_file(head: bytes) -> bytes:
    """Returns a packed file with this head, whose digest is corrected as its writer would have set
    it."""
    head = head.ljust(_HEAD_BYTES, b"\0")
    table_bytes, num_chunks = _SIZES.unpack_from(head, _SIZES_OFFSET)
    rest = head[_HEAD_BYTES : _HEAD_BYTES + table_bytes + 8 * num_chunks]
    digest = hashlib.sha256(_SIZES.pack(table_bytes, num_chunks) + rest).digest()
    sealed = head[: _HEAD_BYTES - len(digest)] + digest + head[_HEAD_BYTES:]
    payload_offset = -(-len(sealed) // CHUNK_BYTES) * CHUNK_BYTES
    return sealed.ljust(payload_offset, b"\0") + _payload()


@cache
def _payload() -> bytes:
    data = packed_bytes(packed_blobs())
    return data[CHUNK_BYTES:]


def tokenizers() -> Sequence[bytes]:
    """Returns tokenizer.json of byte-level BPE."""
    return [
        hugging_face_files(_vocabulary(kind), "a seed")["tokenizer.json"].encode()
        for kind in ("gpt2", "llama", "bert", "t5")
    ]


def templates() -> Sequence[bytes]:
    return [
        b"{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{% endfor %}",
        b"{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ bos_token }}",
        b"{% set n = namespace(n=0) %}{% for i in range(9) %}{% set n.n = n.n + i %}{% endfor %}",
        b"{% macro f(x) %}{{ x * 3 }}{% endmacro %}{{ f('a') }}{{ raise_exception('no') }}",
    ]


def _entry(blob: Blob) -> dict[str, object]:
    return {"fields": dict(blob.fields), "num_bytes": blob.data.nbytes}


def _safetensors(metadata: dict[str, str]) -> bytes:
    tensors = {
        "a.weight": StoredTensor(dtype="F32", array=np.ones((3, 4), np.float32)),
        "b.weight": StoredTensor(dtype="BF16", array=np.ones((2, 5), np.uint16)),
        "c": StoredTensor(dtype="U8", array=np.ones(8, np.uint8)),
    }
    head, order = build_header(tensors, metadata)
    return head + b"".join(tensors[name].array.tobytes() for name in order)


def _gguf(kind: str) -> bytes:
    spec = spec_from_config(LLAMA)
    family = family_from_config(LLAMA)
    names = Names(family=family, prefix=family.prefixes[0])
    tensors = [
        NewTensor(name=one.name, block=BLOCK_FORMATS["F32"], shape=one.stored_shape)
        for one in gguf_tensors(spec, names)
    ]
    metadata: dict[str, Value] = {**metadata_from_spec(spec), **_vocabulary(kind)}
    data = b"".join(bytes(-(-one.num_bytes // 32) * 32) for one in tensors)
    return build_gguf_header(metadata, tensors) + data


def _vocabulary(kind: str) -> dict[str, Value]:
    tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab", "c", "abc", *"defghijk"]
    ids = dict.fromkeys(("bos", "unknown", "padding", "eos"), np.uint32(1))
    found: dict[str, Value] = {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.arange(16, dtype=np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [1] * 13, np.int32),
        "tokenizer.ggml.merges": ["a b", "ab c"],
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    return found | {f"tokenizer.ggml.{name}_token_id": one for name, one in ids.items()}
