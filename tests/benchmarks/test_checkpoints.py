"""Random checkpoints, and GGUF files that hold the same weights, read by gguf's own reader."""

import gguf
import numpy as np
import pytest

from benchmarks.checkpoints.cache import Variant, bf16_folder, gguf_file, paredown_folder
from benchmarks.checkpoints.shapes import CONFIGS
from benchmarks.checkpoints.tokenizer import make_vocabulary
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.config import spec_from_config
from paredown.models.families.gguf_rows import LINEARS
from paredown.models.gguf.rope import rope_factors
from paredown.models.text.tokenizer import Tokenizer

MODELS = ("tiny-llama", "tiny-qwen2")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def read(path):
    """Dequantized tensors by name, as [rows, columns]."""
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in gguf.GGUFReader(path).tensors
    }


def unpermute_rows(values_OI, num_heads):
    """From neighbours to halves, row by row."""
    head_dim = len(values_OI) // num_heads
    found = np.empty_like(values_OI)
    for head in range(num_heads):
        for i in range(head_dim):
            half, place = i % 2, i // 2
            found[head * head_dim + half * head_dim // 2 + place] = values_OI[head * head_dim + i]
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("format_name", ["bf16", "int8", "int4-g32"])
def test_a_gguf_file_holds_the_weights_of_the_checkpoint(root, model, format_name) -> None:
    checkpoint = Checkpoint.open(bf16_folder(root, model))
    tensors = read(gguf_file(root, Variant(model=model, format=format_name)))
    spec = checkpoint.spec
    for layer in range(spec.num_layers):
        for role in spec.linear_shapes(0):
            name = f"{checkpoint.linear_name(role, layer)}.weight"
            expected = checkpoint.tensors[name].to_float32()
            found = tensors[f"blk.{layer}.{LINEARS[role]}.weight"]
            if model == "tiny-llama" and role in ("q", "k"):
                attention = spec.layers[layer].attention
                heads = attention.num_heads if role == "q" else attention.num_kv_heads
                found = unpermute_rows(found, heads)
            groups = expected.reshape(len(expected), -1, 32)
            # Q4_0 has 16 levels from -8 to 7 steps, Q8_0 255 of 127 steps to each side.
            steps = {"bf16": np.inf, "int8": 127, "int4-g32": 8}[format_name]
            step = np.abs(groups).max(axis=2, keepdims=True) / steps
            error = np.abs(found.reshape(groups.shape) - groups)
            # A step at the far end of Q4_0's uneven range; f16 scales add a thousandth.
            assert (error <= step * (1.001 if format_name == "int4-g32" else 0.55)).all()
    for name, role in (("output_norm", "final_norm"), ("blk.1.attn_norm", "attention_norm")):
        layer = None if role == "final_norm" else 1
        expected = checkpoint.vector(f"{role}.weight", layer)
        np.testing.assert_array_equal(tensors[f"{name}.weight"], expected)
    embedding = checkpoint.tensors["model.embed_tokens.weight"].to_float32()
    np.testing.assert_array_equal(tensors["token_embd.weight"], embedding)
    assert "output.weight" not in tensors


def test_biases_are_written(root) -> None:
    checkpoint = Checkpoint.open(bf16_folder(root, "tiny-qwen2"))
    tensors = read(gguf_file(root, Variant(model="tiny-qwen2", format="bf16")))
    for role in ("q", "k", "v"):
        expected = checkpoint.vector(f"{role}.bias", 1)
        np.testing.assert_array_equal(tensors[f"blk.1.{LINEARS[role]}.bias"], expected)


def test_an_output_layer_with_its_own_format_is_a_tensor_of_its_own(root) -> None:
    variant = Variant(model="tiny-llama", format="int4-g32", output_format="int8")
    assert variant.name == "int4-g32-head-int8"
    tensors = {t.name: t.tensor_type for t in gguf.GGUFReader(gguf_file(root, variant)).tensors}
    assert tensors["output.weight"] == gguf.GGMLQuantizationType.Q8_0
    assert tensors["token_embd.weight"] == gguf.GGMLQuantizationType.BF16
    assert tensors["blk.0.ffn_up.weight"] == gguf.GGMLQuantizationType.Q4_0


def test_a_format_that_gguf_has_not_is_refused(root) -> None:
    with pytest.raises(UnsupportedError, match="int4-g128"):
        gguf_file(root, Variant(model="tiny-llama", format="int4-g128"))


def test_rope_factors_divide_the_plain_frequencies(root) -> None:
    spec = spec_from_config(CONFIGS["tiny-llama"])
    attention = spec.layers[0].attention
    factors = rope_factors(attention.rotary, attention.head_dim)
    plain = 10000.0 ** (-np.arange(0, attention.head_dim, 2) / attention.head_dim)
    expected = attention.rotary.inverse_frequencies(attention.head_dim)
    np.testing.assert_allclose(plain / factors, expected, rtol=1e-6)
    assert factors.min() == 1
    assert factors.max() == 32
    tensors = read(gguf_file(root, Variant(model="tiny-llama", format="bf16")))
    np.testing.assert_array_equal(tensors["rope_freqs.weight"], factors)
    unscaled = spec_from_config(CONFIGS["tiny-qwen2"]).layers[0].attention
    assert rope_factors(unscaled.rotary, unscaled.head_dim) is None


def test_checkpoints_are_the_same_each_time_and_compress(root, tmp_path) -> None:
    again = Checkpoint.open(bf16_folder(tmp_path, "tiny-llama"))
    first = Checkpoint.open(bf16_folder(root, "tiny-llama"))
    for name, tensor in first.tensors.items():
        np.testing.assert_array_equal(again.tensors[name].array, tensor.array)
    folder = paredown_folder(root, Variant(model="tiny-llama", format="int8"))
    assert Checkpoint.open(folder).linear("q", 0).spec.name == "int8"


def test_the_tokenizer_has_every_token_and_reads_text(root) -> None:
    tokenizer = Tokenizer.open(bf16_folder(root, "tiny-llama"))
    config = CONFIGS["tiny-llama"]
    assert tokenizer.vocab_size == config["vocab_size"]
    assert tokenizer.eos_token_ids == {config["eos_token_id"]}
    words = "Once upon a time, naïve."
    assert tokenizer.decode(tokenizer.encode(words)) == words
    vocabulary = make_vocabulary(1000, frozenset({3, 999}))
    assert len(set(vocabulary.tokens)) == 1000
    assert len(vocabulary.merges) == 1000 - 256 - 2
