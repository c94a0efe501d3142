"""What users of comparable tools ran into with these families: every case is right here, on both
executors, beside Transformers in float32. Weights are wide, so that no fault hides in flat logits.
"""

import copy
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from fakes.gguf_models import NO_WORDS
from paredown.compress.convert.write_gguf import write_gguf
from paredown.errors import UnsupportedError
from paredown.executors.load import load_executor
from paredown.executors.protocol import SequenceSlice
from paredown.executors.run_options import ExecutorName, RunOptions
from paredown.models.checkpoint import Checkpoint

SIZES: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TWENTY = list(range(5, 25))
FORTY = list(range(5, 45))
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 16}
FULL = {**YARN, "factor": 8.0, "rope_theta": 5e5}


def make(folder: Path, model_type: str, **fields: Any) -> Path:
    config = AutoConfig.for_model(**copy.deepcopy({**SIZES, "model_type": model_type, **fields}))
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, values in model.named_parameters():
            if values.ndim > 1:
                values.normal_(0, 0.15)
            else:
                values.normal_(0 if name.endswith("bias") or "gemma" in model_type else 1, 0.5)
    model.save_pretrained(folder)
    return folder


def logprobs(path: Path, ids: list[int], name: ExecutorName) -> torch.Tensor:
    """Of each token after the first."""
    options = RunOptions(executor=name, num_pages=8, activations="fp32", kv_dtype="fp32")
    executor = load_executor(Checkpoint.open(path), options)
    logits = executor.step([SequenceSlice(ids, 0, list(range(8)), len(ids))])
    return chosen(torch.from_numpy(logits), ids)


def chosen(logits_TV: torch.Tensor, ids: list[int]) -> torch.Tensor:
    rows = logits_TV[:-1].double().log_softmax(-1)
    return rows.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def of_transformers(folder: Path, ids: list[int]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        return chosen(model(torch.tensor([ids])).logits[0], ids)


def check_same(folder: Path, ids: list[int]) -> None:
    expected = of_transformers(folder, ids)
    for name in ("native", "torch"):
        found = logprobs(folder, ids, name)
        assert (found - expected).abs().max() < 1e-3


def as_gguf(folder: Path) -> Path:
    file = folder.parent / f"{folder.name}.gguf"
    write_gguf(Checkpoint.open(folder), file, vocabulary=NO_WORDS, formats=None)
    return file


def check_gguf(folder: Path, ids: list[int]) -> Path:
    """Our own file gives the same as the folder."""
    file, expected = as_gguf(folder), logprobs(folder, ids, "native")
    assert (logprobs(file, ids, "native") - expected).abs().max() < 1e-3
    return file


def test_e01_the_scale_of_scores_is_the_configs_own(tmp_path: Path) -> None:
    folder = make(
        tmp_path / "a", "gemma3_text", num_hidden_layers=6, query_pre_attn_scalar=24, head_dim=16
    )
    scale = Checkpoint.open(folder).spec.layers[0].attention.score_scale
    assert scale == pytest.approx(0.204124, abs=1e-6)
    check_same(folder, TWENTY)
    with pytest.raises(UnsupportedError, match="attention scale"):
        as_gguf(folder)


def longrope(folder: Path) -> Path:
    factors = {"short_factor": [1.0] * 8, "long_factor": [1.0, 2, 4, 8, 16, 32, 64, 64]}
    rotary = {"rope_type": "longrope", "rope_theta": 1e4, **factors}
    return make(
        folder, "phi3", hidden_size=64, original_max_position_embeddings=16, rope_parameters=rotary
    )


def test_e03_long_factors_follow_the_length_of_the_text(tmp_path: Path) -> None:
    """A prompt that grows past the switch and answers side by side: tests/engine/test_long_texts.py
    has them."""
    folder = longrope(tmp_path / "a")
    rotary = Checkpoint.open(folder).spec.layers[0].attention.rotary
    assert rotary is not None
    assert rotary.attention_factor == pytest.approx(1.322876, abs=1e-6)
    for ids in (TWENTY[:10], FORTY[:24], TWENTY[:10]):
        check_same(folder, ids)


@pytest.mark.parametrize(
    ("fields", "turned", "is_written"),
    [
        ({"no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0]}, [1, 1, 1, 0, 1, 1, 1, 0], True),
        ({"no_rope_layers": [0, 1, 1, 1, 1, 0, 1, 1]}, [0, 1, 1, 1, 1, 0, 1, 1], False),
        ({"no_rope_layer_interval": 4}, [1, 1, 1, 0, 1, 1, 1, 0], True),
    ],
)
def test_e05_layers_without_rotary_positions(
    fields: dict[str, Any], turned: list[int], is_written: bool, tmp_path: Path
) -> None:
    folder = make(tmp_path / "a", "smollm3", num_hidden_layers=8, hidden_size=64, **fields)
    if "no_rope_layers" not in fields:
        edit_config(folder, no_rope_layers=None)
    layers = Checkpoint.open(folder).spec.layers
    assert [int(layer.attention.rotary is not None) for layer in layers] == turned
    check_same(folder, TWENTY)
    if is_written:
        check_gguf(folder, TWENTY)
    else:
        with pytest.raises(UnsupportedError, match="rotary"):
            as_gguf(folder)


def edit_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    config = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({name: one for name, one in config.items() if one is not None}))


def olmo3(folder: Path) -> Path:
    sliding = {"rope_type": "default", "rope_theta": 5e5}
    rotary = {"full_attention": FULL, "sliding_attention": sliding}
    return make(
        folder, "olmo3", hidden_size=64, sliding_window=8, rope_parameters=rotary,
        num_key_value_heads=4,
    )  # fmt: skip


def test_e07_windows_are_turned_plainly_beside_yarn(tmp_path: Path) -> None:
    folder = olmo3(tmp_path / "a")
    rotaries = [layer.attention.rotary for layer in Checkpoint.open(folder).spec.layers]
    assert [one and one.scaling for one in rotaries] == ["none", "none", "none", "yarn"]
    check_same(folder, FORTY)


def test_e07_a_flat_scaling_is_that_of_the_full_layers(tmp_path: Path) -> None:
    """As published: `rope_scaling` and the usual base beside it."""
    folder = olmo3(tmp_path / "a")
    edit_config(
        folder, rope_parameters=None, rope_theta=500_000,
        rope_scaling={name: one for name, one in FULL.items() if name != "rope_theta"},
    )  # fmt: skip
    check_same(folder, FORTY)


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 1e4, "rope_parameters": None},
        {"rope_theta": 1e4, "rope_parameters": {"sliding_attention": {"rope_type": "default"}}},
        {"rope_parameters": {**YARN}},
    ],
)
def test_e07_parameters_of_no_kind_of_layer_are_refused(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    """Transformers gives sliding layers the usual base, whatever the config names."""
    folder = olmo3(tmp_path / "a")
    edit_config(folder, **fields)
    with pytest.raises(UnsupportedError) as caught:
        Checkpoint.open(folder)
    assert all(word in str(caught.value) for word in ("rope_parameters", "sliding_attention"))
    named = {"rope_type": "default", "rope_theta": 1e4}
    edit_config(
        folder, rope_theta=1e4,
        rope_parameters={"sliding_attention": named, "full_attention": named},
    )  # fmt: skip
    check_same(folder, TWENTY)


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("model_type", ["gemma", "gemma2", "gemma3_text"])
def test_e09_norms_are_stored_less_one_in_folders_alone(
    model_type: str, zeros: bool, tmp_path: Path
) -> None:
    scalar = {} if model_type == "gemma" else {"query_pre_attn_scalar": 16}
    folder = make(tmp_path / "a", model_type, num_hidden_layers=6, **scalar)
    tensors = load_file(folder / "model.safetensors")
    norms = [name for name in tensors if "norm" in name]
    if zeros:
        tensors |= {name: torch.zeros_like(tensors[name]) for name in norms}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    check_same(folder, TWENTY)
    file = check_gguf(folder, TWENTY)
    if zeros:
        stored = [one for one in gguf.GGUFReader(file).tensors if "norm" in one.name]
        assert len(stored) == len(norms)
        assert all((one.data == 1).all() for one in stored)
    back = Checkpoint.open(file).tensors
    assert all(np.allclose(back[name].to_float32(), tensors[name], atol=1e-6) for name in norms)


@pytest.mark.parametrize("window", [8, 4096])
def test_scores_and_logits_of_gemma_2_are_capped(window: int, tmp_path: Path) -> None:
    """Before they are masked, in layers with a window and without, and with caps of 50 and 30 where
    the config names none."""
    fields: dict[str, Any] = {"query_pre_attn_scalar": 16, "sliding_window": window}
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
    for name, own in (("low", caps), ("usual", {})):
        folder = make(tmp_path / name, "gemma2", **fields, **own)
        check_same(folder, FORTY)
        check_gguf(folder, FORTY)


SCALED = {
    "a": ({}, 1.138629, None),
    "b": ({"attention_factor": 1.0}, 1.0, None),
    "c": ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0, None),
    "d": ({"beta_fast": 4.0}, 1.138629, "yarn_beta_fast"),
    "e": ({"truncate": False}, 1.138629, "truncate"),
}


@pytest.mark.parametrize("name", SCALED)
def test_e13_every_parameter_of_yarn_counts(name: str, tmp_path: Path) -> None:
    more, factor, refusal = SCALED[name]
    folder = make(tmp_path / "a", "llama", rope_parameters=YARN | more)
    rotary = Checkpoint.open(folder).spec.layers[0].attention.rotary
    assert rotary is not None
    assert rotary.attention_factor == pytest.approx(factor, abs=1e-6)
    check_same(folder, FORTY)
    if refusal is None:
        check_gguf(folder, FORTY)
    else:
        with pytest.raises(UnsupportedError, match=refusal):
            as_gguf(folder)
