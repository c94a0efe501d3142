"""What the decoder writes is the checkpoint it came from, and with other sizes one that loads."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fakes.packed_folders import write_packed
from fakes.tiny_models import DECODER_VARIANTS, VARIANTS, VOCAB_SIZE
from paredown.errors import OutputError, UnsupportedError
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.decoder.write import write_decoder
from paredown.spec.layer import LayerSpec
from paredown.spec.model import ModelSpec
from paredown.spec.weight import WeightSpec

ALL_VARIANTS = VARIANTS | DECODER_VARIANTS
IDS = torch.arange(2, 42).reshape(2, 20)


def opened(name: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Checkpoint:
    ALL_VARIANTS[name](folder, dtype, 3)
    return Checkpoint.open(folder)


def random_decoder(spec: ModelSpec) -> Decoder:
    torch.manual_seed(7)
    return Decoder(spec).requires_grad_(False).eval()


@pytest.mark.parametrize("name", ALL_VARIANTS)
def test_what_is_read_is_written_bit_for_bit(name: str, tmp_path: Path) -> None:
    source = opened(name, tmp_path / "in")
    decoder = Decoder.from_checkpoint(source)
    assert write_decoder(decoder, source, tmp_path / "out") == {}
    written = Checkpoint.open(tmp_path / "out")
    assert written.config == source.config
    assert list(written.config) == list(source.config)
    assert written.spec == source.spec
    assert written.tensors.keys() == source.tensors.keys()
    for tensor, expected in source.tensors.items():
        found = written.tensors[tensor]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.array.tobytes() == expected.array.tobytes(), tensor
    again = Decoder.from_checkpoint(written)
    assert torch.equal(again(IDS), decoder(IDS))


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_weights_in_another_dtype(dtype: str, tmp_path: Path) -> None:
    source = opened("llama-gqa", tmp_path / "in", torch.float32)
    decoder = Decoder.from_checkpoint(source)
    decoder.embedding.weight[5, 3] = 1e6
    clamped = write_decoder(decoder, source, tmp_path / "out", dtype=dtype)
    assert clamped == ({"model.embed_tokens.weight": 1} if dtype == "fp16" else {})
    written = Checkpoint.open(tmp_path / "out")
    assert {spec.dtype for spec in written.weight_specs().values()} == {dtype}
    assert (
        written.config["dtype"] == {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[dtype]
    )


def test_codes_become_the_floats_they_stand_for(tmp_path: Path) -> None:
    write_packed(tmp_path / "in", "llama-gqa", WeightSpec(dtype="int4", group_size=32))
    source = Checkpoint.open(tmp_path / "in")
    decoder = Decoder.from_checkpoint(source)
    write_decoder(decoder, source, tmp_path / "floats")
    written = Checkpoint.open(tmp_path / "floats")
    assert "quantization_config" not in written.config
    assert not written.is_quantized
    assert torch.equal(Decoder.from_checkpoint(written)(IDS), decoder(IDS))


def each(spec: ModelSpec, **changes: object) -> ModelSpec:
    """Other sizes of attention or MLP in every layer."""

    def changed(layer: LayerSpec) -> LayerSpec:
        parts = {}
        for part in ("attention", "mlp"):
            own = {name: value for name, value in changes.items() if hasattr(layer.mlp, name)}
            if part == "attention":
                own = {name: changes[name] for name in changes.keys() - own.keys()}
            parts[part] = replace(getattr(layer, part), **own)
        return replace(layer, **parts)

    return replace(spec, layers=tuple(map(changed, spec.layers)))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama-gqa", {"size": 32}),
        ("llama-gqa", {"num_heads": 2, "num_kv_heads": 1}),
        ("llama-gqa", {"head_dim": 8}),
        ("qwen3", {"num_heads": 2, "num_kv_heads": 1, "size": 64}),
        ("mixtral", {"num": 3, "size": 48}),
        ("qwen2-moe", {"num": 5, "num_per_token": 1, "shared_size": 32}),
        ("qwen3-moe", {"size": 16}),
        ("gpt2", {"size": 128}),
        ("opt", {"size": 64}),
        ("gpt-neox", {"size": 48}),
        ("gemma2", {"size": 48, "num_heads": 2, "num_kv_heads": 1}),
    ],
)
def test_other_sizes_are_in_the_config(name: str, changes: dict[str, int], tmp_path: Path) -> None:
    source = opened(name, tmp_path / "in")
    decoder = random_decoder(each(source.spec, **changes))
    write_decoder(decoder, source, tmp_path / "out", dtype="fp32")
    written = Checkpoint.open(tmp_path / "out")
    assert written.spec == decoder.spec
    torch.testing.assert_close(
        Decoder.from_checkpoint(written)(IDS), decoder(IDS), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", ["llama-gqa", "gpt2", "qwen3-mixed", "qwen3-moe-dense-first"])
@pytest.mark.parametrize("kept", [0, 1])
def test_fewer_layers_are_in_the_config(name: str, kept: int, tmp_path: Path) -> None:
    source = opened(name, tmp_path / "in")
    spec = replace(source.spec, layers=(source.spec.layers[kept],))
    write_decoder(random_decoder(spec), source, tmp_path / "out")
    assert Checkpoint.open(tmp_path / "out").spec == spec


def test_other_tables_are_in_the_config(tmp_path: Path) -> None:
    source = opened("gpt2", tmp_path / "in")
    output = replace(source.spec.output, is_tied=False)
    spec = replace(source.spec, vocab_size=VOCAB_SIZE - 8, max_positions=64, output=output)
    write_decoder(random_decoder(spec), source, tmp_path / "out")
    assert Checkpoint.open(tmp_path / "out").spec == spec


@pytest.mark.parametrize(
    ("name", "changes", "seen"),
    [
        ("gpt2", {"num_heads": 2, "num_kv_heads": 2}, "num_heads 2 instead of 4"),
        ("opt", {"head_dim": 16}, "head_dim 16 instead of 32"),
        ("qwen2", {"qkv_bias": False}, "another form"),
    ],
)
def test_sizes_without_a_field_are_refused(
    name: str, changes: dict[str, object], seen: str, tmp_path: Path
) -> None:
    source = opened(name, tmp_path / "in")
    decoder = random_decoder(each(source.spec, **changes))
    with pytest.raises(UnsupportedError, match=seen):
        write_decoder(decoder, source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_layers_that_differ_are_refused(tmp_path: Path) -> None:
    source = opened("llama-gqa", tmp_path / "in")
    first, second = source.spec.layers
    narrow = replace(second, mlp=replace(second.mlp, size=32))
    decoder = random_decoder(replace(source.spec, layers=(first, narrow)))
    with pytest.raises(UnsupportedError, match="mlp_size 96, 32 instead of 96"):
        write_decoder(decoder, source, tmp_path / "out")


def test_a_folder_that_is_there_is_refused_and_other_files_come_along(tmp_path: Path) -> None:
    source = opened("llama-gqa", tmp_path / "in")
    (tmp_path / "in" / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    decoder = Decoder.from_checkpoint(source)
    write_decoder(decoder, source, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "tokenizer.json").read_text()) == {"version": "1.0"}
    with pytest.raises(OutputError, match="exists already"):
        write_decoder(decoder, source, tmp_path / "out")
    write_decoder(decoder, source, tmp_path / "out", overwrite=True)
