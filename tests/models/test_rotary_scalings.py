"""Rotary scalings whose cosines are multiplied, or that depend on the length of a text, beside
Transformers' own."""

import copy
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from paredown.errors import CheckpointError
from paredown.models.config import spec_from_config
from paredown.models.decoder.decoder import Decoder
from paredown.spec.rotary import Rotary

SIZES: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0],
    "original_max_position_embeddings": 16,
}
SCALINGS: dict[str, dict[str, Any]] = {
    "yarn": YARN,
    "yarn of a factor given": YARN | {"attention_factor": 1.0},
    "yarn of equal mscales": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    "yarn of other mscales": YARN | {"mscale": 0.7, "mscale_all_dim": 1.2},
    "yarn of one mscale": YARN | {"mscale": 0.7},
    "yarn of a smaller beta": YARN | {"beta_fast": 4.0},
    "yarn of a larger slow beta": YARN | {"beta_slow": 1.7},
    "yarn without whole columns": YARN | {"truncate": False},
    "yarn without a factor": YARN | {"factor": None},
    "longrope": LONGROPE,
    "longrope of a factor given": LONGROPE | {"factor": 3.0},
    "longrope of an attention factor": LONGROPE | {"attention_factor": 1.1},
}


def rotary_of(scaling: dict[str, Any]) -> Rotary:
    config = SIZES | {"rope_parameters": {"rope_theta": 1e4, **scaling}}
    rotary = spec_from_config(copy.deepcopy(config)).layers[0].attention.rotary
    assert rotary is not None
    return rotary


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("num_tokens", [10, 16, 17, 100])
def test_frequencies_and_factors_are_those_of_transformers(name: str, num_tokens: int) -> None:
    scaling = SCALINGS[name]
    config = SIZES | {"rope_parameters": {"rope_theta": 1e4, **scaling}}
    init = ROPE_INIT_FUNCTIONS[scaling["rope_type"]]
    theirs, factor = init(AutoConfig.for_model(**copy.deepcopy(config)), seq_len=num_tokens)
    rotary = rotary_of(scaling)
    assert rotary.inverse_frequencies(16, num_tokens) == pytest.approx(theirs.tolist(), rel=1e-6)
    assert rotary.attention_factor == pytest.approx(factor, rel=1e-12)


def test_the_factors_that_reports_name() -> None:
    assert rotary_of(YARN).attention_factor == pytest.approx(1.138629, abs=1e-6)
    phi = rotary_of(LONGROPE)
    assert phi.attention_factor == pytest.approx(1.322876, abs=1e-6)
    assert phi.switch_tokens == 16
    alike = rotary_of(LONGROPE | {"long_factor": LONGROPE["short_factor"]})
    assert alike.switch_tokens is None


def test_dynamic_scaling_changes_nothing_within_the_context() -> None:
    assert rotary_of({"rope_type": "dynamic", "factor": 4.0}) == rotary_of({})


def test_longrope_wants_a_factor_for_each_pair() -> None:
    with pytest.raises(CheckpointError, match="8 short and 7 long"):
        rotary_of(LONGROPE | {"long_factor": [1.0] * 7})
    with pytest.raises(CheckpointError, match="short_factor"):
        rotary_of(LONGROPE | {"short_factor": [1.0, "2"]})


@pytest.mark.parametrize("name", [*SCALINGS, "dynamic"])
@pytest.mark.parametrize("num_tokens", [10, 40])
def test_logits_are_those_of_transformers(name: str, num_tokens: int) -> None:
    scaling = SCALINGS.get(name, {"rope_type": "dynamic", "factor": 4.0})
    config = SIZES | {"rope_parameters": {"rope_theta": 1e4, **scaling}}
    torch.manual_seed(1)
    theirs = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**copy.deepcopy(config)), attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for values in theirs.parameters():
            values.normal_(0, 0.15) if values.ndim > 1 else values.normal_(1, 0.5)
    decoder = Decoder(spec_from_config(copy.deepcopy(config))).eval()
    decoder.load_state_dict(_renamed(theirs.state_dict()))
    ids_BT = torch.arange(5, 5 + num_tokens)[None]
    with torch.no_grad():
        torch.testing.assert_close(decoder(ids_BT), theirs(ids_BT).logits, rtol=2e-4, atol=2e-4)


def _renamed(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    changes = {
        "model.embed_tokens": "embedding",
        "model.norm": "final_norm",
        "lm_head": "output",
        "model.layers": "layers",
        "self_attn.": "",
        "mlp.": "",
        "_proj": "",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "mlp_norm",
    }
    renamed = {}
    for name, values in state.items():
        for theirs, ours in changes.items():
            name = name.replace(theirs, ours)
        renamed[name] = values
    return renamed
