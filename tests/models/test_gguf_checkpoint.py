"""A GGUF file as a checkpoint: the same spec and numbers as the folder it was made from."""

import contextlib
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from fakes.gguf_models import NO_WORDS, write_pair
from fakes.tiny_models import VARIANTS, VOCAB_SIZE
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import CheckpointError, UnsupportedError
from paredown.formats.gguf.table import BLOCK_FORMATS
from paredown.models.checkpoint import Checkpoint
from paredown.models.decoder.decoder import Decoder
from paredown.models.gguf.file import read_gguf, write_gguf_file
from paredown.models.gguf.header import NewTensor, Value
from paredown.models.gguf.metadata import metadata_from_spec
from paredown.models.gguf.names import ROPE_FACTORS
from paredown.models.gguf.rope import rope_factors, rotary_from_factors
from paredown.models.resolve import resolve_model
from paredown.spec.rotary import Rotary

WRITTEN = (
    "llama-gqa", "llama-mqa", "llama-mha", "llama-tied", "llama-biases", "llama-head-dim",
    "llama-rope-llama3", "llama-rope-linear", "mistral-full", "qwen2", "qwen2-tied", "qwen3",
    "gemma3-six-layers", "gemma", "granite", "granite-biases", "smollm3", "phi3", "phi",
    "phi3-longrope", "phi3-partial", "olmo2-untied", "gpt-neox", "gpt-neox-whole-heads",
    "olmo3", "olmo3-listed", "gpt-neox-one-after-the-other", "gemma2-as-llama-cpp",
    "mixtral", "qwen2-moe", "qwen3-moe",
)  # fmt: skip
REFUSED = {
    "llama-gelu": "activation of gelu would be silu",
    "smollm3-listed": "layer 0 attention rotary",
    "phi3-partial-window": "attention window of 7 would be None",
    "gpt-neox-sequential": "an output layer tied to the embedding",
    "gemma2": "attention scale of .* would be",
    "gemma2-untied": "an output layer of its own",
    "gemma2-no-caps": "soft_cap of None would be 50",
    "gemma3": "attention scale of .* would be",
    "mistral-window": "attention window of 7 would be None",
    "qwen2-window": "attention window of 5 would be None",
    "qwen3-tied-biases": "bias of True would be False",
    "qwen2-moe-every-second": "experts in some layers alone",
    "qwen3-moe-dense-first": "experts in some layers alone",
    "mixtral-window": "attention window of 7 would be None",
    "gpt2": "family gpt2",
    "opt": "family opt",
}


def random_ids() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(0, VOCAB_SIZE, (1, 24)))


@pytest.mark.parametrize("variant", WRITTEN)
def test_spec_and_weights_come_back(variant: str, tmp_path: Path) -> None:
    source, found = write_pair(tmp_path, variant)
    family = "llama" if source.spec.family == "mistral" else source.spec.family
    layers = ()
    for layer, other in zip(source.spec.layers, found.spec.layers, strict=True):
        rotary = [one.attention.rotary for one in (layer, other)]
        if rotary != [None, None]:
            assert all(isinstance(one, Rotary) for one in rotary)
            frequencies = [one.inverse_frequencies(layer.attention.head_dim) for one in rotary]
            np.testing.assert_allclose(*frequencies, rtol=1e-6)
        layers += (replace(other, attention=replace(other.attention, rotary=rotary[0])),)
    assert replace(found.spec, layers=layers) == replace(source.spec, family=family)
    assert found.tensors.keys() == source.tensors.keys()
    for name, tensor in source.tensors.items():
        assert found.tensors[name].shape == tensor.shape
        np.testing.assert_array_equal(found.tensors[name].to_float32(), tensor.to_float32())
    assert found.weight_specs() == source.weight_specs()
    assert not found.is_quantized
    assert found.notes == ()
    with torch.no_grad():
        logits = [Decoder.from_checkpoint(one)(random_ids()) for one in (source, found)]
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", list(REFUSED))
def test_what_llama_cpp_would_run_otherwise_is_refused(variant: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=REFUSED[variant]):
        write_pair(tmp_path, variant)
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize("variant", ["llama-gqa", "qwen2-tied", "qwen3"])
@pytest.mark.parametrize("formats", ["gguf-f16", "gguf-q8_0", "gguf-q4_0"])
def test_transformers_loads_the_same_weights(variant: str, formats: str, tmp_path: Path) -> None:
    _, ours = write_pair(tmp_path, variant, formats=formats)
    # `from_pretrained` does these same steps, but asks for one more package first.
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path / "source"))
    path = str(tmp_path / "model.gguf")
    theirs = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    for layer in range(ours.spec.num_layers):
        for role in ours.spec.linear_shapes(0):
            weight = ours.linear(role, layer)
            expected = theirs[f"{ours.linear_name(role, layer)}.weight"].numpy()
            # Our dequantization rounds to fp16, the dtype of the scale; theirs does not.
            np.testing.assert_allclose(weight.dequantize(), expected, rtol=2**-11, atol=1e-7)
    np.testing.assert_allclose(
        ours.embedding().dequantize(),
        theirs["model.embed_tokens.weight"].numpy(),
        rtol=2**-11,
        atol=1e-7,
    )


def test_rows_are_paired_as_llama_cpp_has_them(tmp_path: Path) -> None:
    source, _ = write_pair(tmp_path, "llama-gqa")
    stored = {one.name: one.data for one in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    attention = source.spec.layers[1].attention
    head_dim = attention.head_dim
    for role, num_heads in (("q", attention.num_heads), ("k", attention.num_kv_heads), ("v", 0)):
        rows = source.linear(role, 1).dequantize()
        found = stored[f"blk.1.attn_{role}.weight"].view(np.uint16).reshape(rows.shape)
        found = (found.astype(np.uint32) << 16).view(np.float32)
        for head in range(num_heads):
            for i in range(head_dim):
                theirs = head * head_dim + i
                ours = head * head_dim + i % 2 * head_dim // 2 + i // 2
                np.testing.assert_array_equal(found[theirs], rows[ours])
        if num_heads == 0:
            np.testing.assert_array_equal(found, rows)


@pytest.mark.parametrize("formats", ["gguf-q8_0", "gguf-q4_0", "gguf-q4_k_m"])
@pytest.mark.parametrize("variant", ["llama-tied", "qwen2"])
def test_a_quantized_file_is_written_again_byte_for_byte(
    formats: str, variant: str, tmp_path: Path
) -> None:
    _, ours = write_pair(tmp_path, variant, formats=formats)
    assert ours.is_quantized
    codes = {"gguf-q8_0": "int8-g32", "gguf-q4_0": "int4-g32", "gguf-q4_k_m": "int5-g32"}
    assert ours.linear("q", 0).spec.name == codes[formats]
    result = write_gguf(ours, tmp_path / "again.gguf", vocabulary=NO_WORDS)
    first, again = read_gguf(tmp_path / "model.gguf"), read_gguf(tmp_path / "again.gguf")
    assert first.places == again.places
    for name in first.places:
        np.testing.assert_array_equal(first.rows(name), again.rows(name))
    assert result.bits_per_weight < 10


@pytest.mark.parametrize(
    ("name", "form"), [("Q4_1", "q4_1"), ("Q5_0", "int5-g32"), ("Q6_K", "q6_k")]
)
def test_other_formats_are_read_as_they_are(name: str, form: str, tmp_path: Path) -> None:
    """A file with its `down` weights in that format; the package quantizes where it can."""
    VARIANTS["llama-wide"](tmp_path / "source", torch.float32, 0)
    source = Checkpoint.open(tmp_path / "source")
    write_gguf(source, tmp_path / "plain.gguf", vocabulary=NO_WORDS)
    plain = read_gguf(tmp_path / "plain.gguf")
    kind = gguf.GGMLQuantizationType[name]
    rows, tensors = [], []
    for tensor, place in plain.places.items():
        raw = plain.rows(tensor)
        block = place.block
        if tensor.endswith("ffn_down.weight"):
            block = BLOCK_FORMATS[name]
            raw = some_blocks(kind, raw.view(np.float32))
        rows.append(raw)
        tensors.append(NewTensor(name=tensor, block=block, shape=place.shape))
    write_gguf_file(tmp_path / "mixed.gguf", plain.metadata, tensors, rows)
    found = Checkpoint.open(tmp_path / "mixed.gguf")
    for layer in range(source.spec.num_layers):
        expected = gguf.dequantize(
            rows[list(plain.places).index(f"blk.{layer}.ffn_down.weight")], kind
        )
        np.testing.assert_allclose(
            found.linear("down", layer).dequantize(), expected, rtol=2**-8, atol=1e-7
        )
    assert found.notes == ()
    assert found.linear("down", 0).spec.name == form
    assert found.is_quantized


def some_blocks(kind: gguf.GGMLQuantizationType, values: np.ndarray) -> np.ndarray:
    try:
        return gguf.quantize(values, kind)
    except NotImplementedError:  # the package reads super-blocks and writes none
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        rng = np.random.default_rng(0)
        blocks = rng.integers(0, 256, (values.size // 256, block_bytes), np.uint8)
        blocks[:, -2:] = np.array([0.01], np.float16).view(np.uint8)
        return blocks.reshape(len(values), -1)


def test_a_path_to_a_file_is_a_model(tmp_path: Path) -> None:
    write_pair(tmp_path, "llama-tied")
    path = tmp_path / "model.gguf"
    assert resolve_model(str(path)) == path
    with pytest.raises(CheckpointError, match="no checkpoint folder or GGUF file"):
        resolve_model(str(tmp_path / "none.gguf"))
    (tmp_path / "other.bin").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match="a file"):
        resolve_model(str(tmp_path / "other.bin"))


Change = dict[str, Value | None]
BAD_METADATA: dict[str, tuple[Change, type[Exception], str]] = {
    "architecture": ({"general.architecture": "rwkv6"}, UnsupportedError, "rwkv6"),
    "no architecture": ({"general.architecture": None}, CheckpointError, "general.architecture"),
    "type": ({"llama.block_count": "2"}, CheckpointError, "llama.block_count"),
    "missing": ({"llama.embedding_length": None}, CheckpointError, "llama.embedding_length"),
    "layers": ({"llama.block_count": np.uint32(2**31 - 1)}, CheckpointError, "block_count"),
    "one too many": ({"llama.block_count": np.uint32(3)}, CheckpointError, "missing"),
    "fewer layers": ({"llama.block_count": np.uint32(1)}, CheckpointError, "not part"),
    "shape": ({"llama.feed_forward_length": np.uint32(95)}, CheckpointError, "wrong shape"),
    "split": ({"split.count": np.uint16(3)}, CheckpointError, "split.count"),
    "experts": ({"llama.expert_count": np.uint32(8)}, CheckpointError, "expert_used_count"),
    "experts that are not there": (
        {"llama.expert_count": np.uint32(8), "llama.expert_used_count": np.uint32(2)},
        CheckpointError,
        r"blk\.0\.ffn_up_exps\.weight' is missing",
    ),
    "fewer experts than used": (
        {"llama.expert_count": np.uint32(1), "llama.expert_used_count": np.uint32(2)},
        CheckpointError,
        "more experts than there are",
    ),
    "rope": ({"llama.rope.dimension_count": np.uint32(8)}, UnsupportedError, "dimension_count"),
    "longrope": ({"llama.rope.scaling.type": "longrope"}, UnsupportedError, "longrope"),
    "logits": ({"llama.logit_scale": np.float32(0.5)}, UnsupportedError, "logit_scale"),
    "scores": ({"llama.attention.scale": np.float32(0.5)}, UnsupportedError, "attention.scale"),
    "both ways": ({"llama.attention.causal": False}, UnsupportedError, "attention.causal"),
    "window": (
        {"llama.attention.sliding_window": np.uint32(8)},
        UnsupportedError,
        "sliding_window",
    ),
    "more layers": (
        {"llama.nextn_predict_layers": np.uint32(1)},
        UnsupportedError,
        "nextn_predict_layers",
    ),
    "scaled angles": (
        {"llama.rope.scaling.attn_factor": np.float32(1.19)},
        UnsupportedError,
        "attn_factor",
    ),
    "eps": (
        {"llama.attention.layer_norm_rms_epsilon": np.float32("nan")},
        CheckpointError,
        "epsilon",
    ),
    "per layer": (
        {"llama.attention.head_count_kv": np.array([2, 2], np.uint32)},
        CheckpointError,
        "head_count_kv",
    ),
    "bos": ({"tokenizer.ggml.bos_token_id": np.int32(-1)}, CheckpointError, "bos_token_id"),
}


def rewrite(path: Path, change: Change) -> None:
    """The same tensors under other metadata."""
    file = read_gguf(path)
    metadata = {k: v for k, v in {**file.metadata, **change}.items() if v is not None}
    tensors = [
        NewTensor(name=name, block=place.block, shape=place.shape)
        for name, place in file.places.items()
    ]
    write_gguf_file(path, metadata, tensors, [file.rows(name) for name in file.places])


@pytest.mark.parametrize("case", list(BAD_METADATA))
def test_metadata_that_make_no_model_are_refused(case: str, tmp_path: Path) -> None:
    write_pair(tmp_path, "llama-gqa")
    change, error, message = BAD_METADATA[case]
    rewrite(tmp_path / "model.gguf", change)
    with pytest.raises(error, match=message):
        Checkpoint.open(tmp_path / "model.gguf")


def test_scales_that_are_no_numbers_name_their_module(tmp_path: Path) -> None:
    write_pair(tmp_path, "qwen2", formats="gguf-q8_0")
    path = tmp_path / "model.gguf"
    raw = bytearray(path.read_bytes())
    start = read_gguf(path).places["blk.1.ffn_up.weight"].start
    raw[start : start + 2] = np.array([np.nan], np.float16).tobytes()
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.up_proj.*not finite"):
        Checkpoint.open(path).linear("up", 1)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(
    ("factor", "original", "high"), [(8.0, 8192, 4.0), (32.0, 8192, 4.0), (4.0, 2048, 8.0)]
)
def test_llama3_scaling_is_found_from_its_factors(
    head_dim: int, factor: float, original: int, high: float
) -> None:
    rotary = Rotary(
        theta=500000.0,
        scaling="llama3",
        factor=factor,
        high_freq_factor=high,
        original_max_positions=original,
    )
    factors = rope_factors(rotary, head_dim)
    assert factors is not None
    assert rotary_from_factors(500000.0, factors) == rotary


@pytest.mark.parametrize(
    "factors",
    [
        np.full(32, np.nan, np.float32),
        np.zeros(32, np.float32),
        np.linspace(1, 3, 32, dtype=np.float32),
        np.repeat(np.array([1, 8], np.float32), 16),
    ],
)
def test_other_factors_are_refused(factors: np.ndarray) -> None:
    with pytest.raises(UnsupportedError, match=r"not Llama 3\.1's"):
        rotary_from_factors(10000.0, factors)


def test_factors_of_another_head_are_refused(tmp_path: Path) -> None:
    write_pair(tmp_path, "llama-rope-llama3")
    path = tmp_path / "model.gguf"
    file = read_gguf(path)
    tensors = [
        NewTensor(
            name=name,
            block=place.block,
            shape=(4,) if name == ROPE_FACTORS else place.shape,
        )
        for name, place in file.places.items()
    ]
    ones = np.ones(4, np.float32).view(np.uint8)
    rows = [ones if name == ROPE_FACTORS else file.rows(name) for name in file.places]
    write_gguf_file(path, file.metadata, tensors, rows)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight"):
        Checkpoint.open(path)


def test_metadata_are_those_of_the_package(tmp_path: Path) -> None:
    """The keys, by gguf's own names for them."""
    source, _ = write_pair(tmp_path, "qwen3")
    found = metadata_from_spec(source.spec)
    keys = gguf.Keys
    for key in (keys.LLM.CONTEXT_LENGTH, keys.Attention.LAYERNORM_RMS_EPS, keys.Rope.FREQ_BASE):
        assert key.format(arch="qwen3") in found
    names = {one.name for one in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, source.spec.num_layers)
    ours = {name.removesuffix(".weight") for name in source.tensors}
    assert {f"{known.get_name(name)}.weight" for name in ours} == names


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mutated")
    write_pair(folder, "llama-rope-llama3")
    return folder / "model.gguf"


@given(data=st.data())
@settings(max_examples=150, deadline=2000)
def test_mutated_files_are_opened_or_refused(data: st.DataObject, small_file: Path) -> None:
    """Bytes of the head, whose numbers make config, names and spec."""
    head_bytes = min(place.start for place in read_gguf(small_file).places.values())
    raw = bytearray(small_file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, head_bytes - 1))] = data.draw(st.integers(0, 255))
    mutated = small_file.with_name("mutated.gguf")
    mutated.write_bytes(raw)
    with contextlib.suppress(CheckpointError, UnsupportedError):
        Checkpoint.open(mutated)


SCALING: dict[str, tuple[Change, float]] = {
    "a factor without a type": ({"llama.rope.scaling.factor": np.float32(4)}, 4.0),
    "the older name": ({"llama.rope.scale_linear": np.float32(4)}, 4.0),
    "no scaling": (
        {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": np.float32(4)},
        1.0,
    ),
    "a factor of one": ({"llama.rope.scaling.factor": np.float32(1)}, 1.0),
    "angles of their own size": ({"llama.rope.scaling.attn_factor": np.float32(1)}, 1.0),
}


@pytest.mark.parametrize("case", list(SCALING))
def test_rotary_scaling_is_read_as_llama_cpp_reads_it(case: str, tmp_path: Path) -> None:
    write_pair(tmp_path, "llama-gqa")
    change, factor = SCALING[case]
    rewrite(tmp_path / "model.gguf", change)
    rotary = Checkpoint.open(tmp_path / "model.gguf").spec.layers[0].attention.rotary
    assert rotary is not None
    assert (rotary.scaling, rotary.factor) == ("none" if factor == 1.0 else "linear", factor)
