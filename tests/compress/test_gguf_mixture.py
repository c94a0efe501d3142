"""Which type each tensor of a mixture has. parity/test_llama_cpp_mixtures.py asks llama.cpp."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fakes.tiny_models import make_model
from paredown.compress.convert.gguf_mixture import GGUF_FORMATS, takes_more_bits
from paredown.errors import UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.names import gguf_tensors

# What llama.cpp's own Q4_K_M of Llama 3.2 1B (16 layers) and Qwen2.5 0.5B (24) have in Q6_K.
MORE_BITS = {
    16: (0, 1, 4, 7, 10, 13, 14, 15),
    24: (0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23),
}
MIXTURES = [name for name, formats in GGUF_FORMATS.items() if formats.is_mixture]


def types(folder: Path, name: str, family: str = "llama", **changes: object) -> dict[str, str]:
    """The matrices of a tiny model in a mixture, by name."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 16}
    make_model(family, torch.float32, 0, **(sizes | changes)).save_pretrained(folder)
    source = Checkpoint.open(folder)
    return {
        tensor.name.removesuffix(".weight"): GGUF_FORMATS[name].block(tensor, source.spec).name
        for tensor in gguf_tensors(source.spec, source.names)
        if len(tensor.shape) == 2
    }


@pytest.mark.parametrize("num_layers", list(MORE_BITS))
def test_the_layers_that_get_more_bits_are_those_of_real_files(num_layers: int) -> None:
    layers = [layer for layer in range(num_layers) if takes_more_bits(layer, num_layers)]
    assert tuple(layers) == MORE_BITS[num_layers]


@given(st.integers(1, 200))
def test_more_bits_are_half_of_the_layers_or_fewer(num_layers: int) -> None:
    """And the last one is always among them."""
    layers = [layer for layer in range(num_layers) if takes_more_bits(layer, num_layers)]
    assert num_layers - 1 in layers
    assert len(layers) <= num_layers / 2 + 2


@pytest.mark.parametrize(
    ("name", "own", "more"), [("gguf-q4_k_m", "Q4_K", "Q6_K"), ("gguf-q5_k_m", "Q5_K", "Q6_K")]
)
def test_values_and_down_get_more_bits_in_a_medium_mixture(
    name: str, own: str, more: str, tmp_path: Path
) -> None:
    found = types(tmp_path, name)
    assert found["token_embd"] == own
    assert found["output"] == "Q6_K"
    for layer in range(16):
        for place in ("attn_v", "ffn_down"):
            assert found[f"blk.{layer}.{place}"] == (more if layer in MORE_BITS[16] else own)
        for place in ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"):
            assert found[f"blk.{layer}.{place}"] == own


def test_the_first_layers_get_more_bits_in_a_small_mixture(tmp_path: Path) -> None:
    found = types(tmp_path, "gguf-q4_k_s")
    values = [found[f"blk.{layer}.attn_v"] for layer in range(16)]
    downs = [found[f"blk.{layer}.ffn_down"] for layer in range(16)]
    assert values == ["Q5_K"] * 4 + ["Q4_K"] * 12
    assert downs == ["Q5_K"] * 2 + ["Q4_K"] * 14


def test_a_module_with_the_values_in_it_is_as_the_values_are(tmp_path: Path) -> None:
    found = types(tmp_path / "m", "gguf-q4_k_m", "phi3")
    for layer in range(16):
        more = "Q6_K" if layer in MORE_BITS[16] else "Q4_K"
        assert found[f"blk.{layer}.attn_qkv"] == found[f"blk.{layer}.ffn_down"] == more
    found = types(tmp_path / "s", "gguf-q4_k_s", "phi3")
    fused = [found[f"blk.{layer}.attn_qkv"] for layer in range(16)]
    assert fused == ["Q5_K"] * 4 + ["Q4_K"] * 12


@pytest.mark.parametrize("name", MIXTURES)
def test_a_tied_table_is_the_output_layer(name: str, tmp_path: Path) -> None:
    found = types(tmp_path, name, tie_word_embeddings=True, num_hidden_layers=2)
    assert found["token_embd"] == "Q6_K"
    assert "output" not in found


def test_columns_that_hold_no_super_block_get_another_type(tmp_path: Path) -> None:
    """SmolLM2's 576 columns, as llama.cpp writes them."""
    sizes = {"hidden_size": 288, "intermediate_size": 512, "num_hidden_layers": 2, "head_dim": 64}
    found = types(tmp_path / "m", "gguf-q4_k_m", **sizes)
    assert found["token_embd"] == found["blk.0.attn_q"] == "Q5_0"
    assert found["output"] == found["blk.1.attn_v"] == "Q8_0"
    assert found["blk.1.attn_output"] == "Q4_K"
    assert found["blk.1.ffn_down"] == "Q6_K"
    assert types(tmp_path / "n", "gguf-q5_k_m", **sizes)["blk.0.attn_q"] == "Q5_1"
    assert types(tmp_path / "o", "gguf-q6_k", **sizes)["blk.0.attn_q"] == "Q8_0"


@pytest.mark.parametrize("name", ["gguf-q4_k_m", "gguf-q8_0"])
def test_columns_that_nothing_divides_are_refused_by_name(name: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 80, "num_hidden_layers": 1, "head_dim": 16}
    with pytest.raises(UnsupportedError, match=r"embed_tokens.*80 columns.*gguf-f16"):
        types(tmp_path, name, **sizes)
