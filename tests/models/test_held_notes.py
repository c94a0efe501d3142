"""What is held otherwise than in the files is told before it is loaded, with its memory."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fakes.tiny_models import make_model
from paredown.compress.convert.write_gguf import write_gguf
from paredown.formats.block_weight import BlockWeight
from paredown.formats.gguf.table import BLOCK_FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.gguf.file import read_gguf, write_gguf_file
from paredown.models.gguf.header import NewTensor
from paredown.models.gguf.vocabulary import GGUFVocabulary
from paredown.models.held_notes import block_notes, padded_notes
from paredown.spec.weight import WeightSpec

SIZES = {"hidden_size": 256, "intermediate_size": 512}


def in_block(folder: Path, name: str) -> Checkpoint:
    """A tiny model whose down projections are zeros in a type that nothing here writes."""
    make_model("llama", torch.float32, 0, **SIZES).save_pretrained(folder / "model")
    source = Checkpoint.open(folder / "model")
    write_gguf(source, folder / "floats.gguf", vocabulary=GGUFVocabulary(metadata={}))
    floats, block = read_gguf(folder / "floats.gguf"), BLOCK_FORMATS[name]
    tensors, rows = [], []
    for key, place in floats.places.items():
        is_down = "ffn_down" in key
        form = block if is_down else place.block
        tensors.append(NewTensor(name=key, block=form, shape=place.shape))
        zeros = np.zeros((place.shape[0], block.row_bytes(place.shape[-1])), np.uint8)
        rows.append(zeros if is_down else floats.rows(key))
    write_gguf_file(folder / f"{name}.gguf", floats.metadata, tensors, rows)
    return Checkpoint.open(folder / f"{name}.gguf")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("IQ2_S", "2 tensors in IQ2_S are dequantized to bf16: there is no kernel for that format"),
        ("IQ3_S", "2 tensors in IQ3_S are held as int5-g32: the same values in 5.5 bits a weight"),
        ("TQ1_0", "2 tensors in TQ1_0 are held as int2-g256: the same values in 2.062 bits"),
    ],
)
def test_a_file_says_what_becomes_of_its_types(name: str, said: str, tmp_path: Path) -> None:
    found = in_block(tmp_path, name)
    (note,) = [note for note in found.notes if name in note]
    assert note.startswith(said)
    block = BLOCK_FORMATS[name]
    kib = 2 * 256 * 512 * block.block_bytes / block.block_columns / 1000
    assert f"{kib:.2f} kB in the file and " in note


def test_types_with_a_kernel_need_no_note(tmp_path: Path) -> None:
    assert not [note for note in in_block(tmp_path, "Q3_K").notes if "Q3_K" in note]


def test_sizes_are_those_of_all_tensors_of_a_type() -> None:
    block = BLOCK_FORMATS["IQ2_S"]
    (note,) = block_notes([(block, (10, 256)), (block, (1000, 512)), (BLOCK_FORMATS["F32"], (3,))])
    num_values = 10 * 256 + 1000 * 512
    assert f"{num_values * 82 / 256 / 1000:.2f} kB in the file" in note
    assert f"{num_values * 2 / 1e6:.2f} MB in memory" in note


def test_output_projections_of_padded_heads_are_told(tmp_path: Path) -> None:
    make_model("llama", torch.float32, 0, head_dim=24).save_pretrained(tmp_path)
    source = Checkpoint.open(tmp_path)
    assert padded_notes(source.spec, source.names, lambda module: False) == ()
    (note,) = padded_notes(source.spec, source.names, lambda module: "layers.1" in module)
    assert note.startswith("1 quantized output projections run dequantized")
    assert note.endswith("(model.layers.1.self_attn.o_proj)")


@pytest.mark.parametrize(
    "name", [name for name, block in BLOCK_FORMATS.items() if block.spec.traits.block is not None]
)
def test_a_block_of_zero_bytes_is_all_zeros(name: str) -> None:
    """Which padding relies on."""
    block = BLOCK_FORMATS[name]
    weight = block.decode(np.zeros((3, block.block_bytes), np.uint8))
    assert isinstance(weight, BlockWeight)
    assert weight.spec != WeightSpec(dtype="bf16")
    np.testing.assert_array_equal(weight.dequantize(), np.zeros((3, block.block_columns)))
