"""Pairs of a text are those that its mask shows, and operations add up to a count by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.scripted_encoder import EMBEDDING, encoder_spec
from paredown.cost.encoder_inspection import inspect_encoder
from paredown.cost.encoder_load import encoder_flops, encoder_load, text_pairs
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.model_formats import ModelFormats
from paredown.cost.roofline import Roofs
from paredown.errors import ConfigError

SPEC = encoder_spec(EMBEDDING)
ROOFS = Roofs(
    name="a machine",
    source="given",
    bandwidth_bytes_per_s=1e10,
    int8_ops_per_s=4e11,
    bf16_flops_per_s=2e11,
    fp32_flops_per_s=1e11,
    memory_bytes=10**10,
    activation_bytes=4,
)


@given(st.integers(1, 40), st.none() | st.integers(1, 45), st.booleans())
def test_pairs_are_those_that_the_mask_shows(num_tokens, window, is_causal):
    shown = sum(
        (window is None or abs(query - key) < window) and not (is_causal and key > query)
        for query in range(num_tokens)
        for key in range(num_tokens)
    )
    assert text_pairs(num_tokens, window, is_causal=is_causal) == shown


def test_arithmetic_is_two_operations_for_each_weight_and_four_for_each_pair():
    num_texts, num_tokens = 3, 10
    causal = sum(range(num_tokens + 1))
    by_hand = 2 * num_tokens * SPEC.num_linear_parameters() + 4 * causal * SPEC.hidden_size
    assert encoder_flops(num_texts, num_tokens, SPEC) == num_texts * by_hand
    assert encoder_load(num_texts, num_tokens, SPEC).asked_share == 1


def inspected(**texts):
    machine = MachineProfile(key="given", roofs=ROOFS)
    return inspect_encoder(SPEC, ModelFormats(), machine, **texts)


def test_rates_follow_from_the_time_and_no_output_layer_counts():
    found = inspected(num_texts=4, text_tokens=16)
    assert found.texts_per_s == pytest.approx(4 / found.predicted_s)
    assert found.tokens_per_s == pytest.approx(64 / found.predicted_s)
    assert found.predicted_s >= found.best_s > 0
    assert "logits" not in {one.operation.name for one in found.operations}
    assert found.memory.kv == 0
    assert found.memory.outputs == 4 * 4 * SPEC.hidden_size
    assert found.as_json()["predicted"]["texts_per_s"] == found.texts_per_s


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"num_texts": 0, "text_tokens": 8}, "--batch"),
        ({"num_texts": 10**7, "text_tokens": 8}, "--batch"),
        ({"num_texts": 1, "text_tokens": 0}, "--prompt-tokens"),
        ({"num_texts": 1, "text_tokens": 65}, "--prompt-tokens"),
    ],
)
def test_texts_that_the_model_does_not_take_are_refused(texts, named):
    with pytest.raises(ConfigError, match=named):
        inspected(**texts)
