"""A step's load by letter, and one operation in numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.random_specs import experts, specs
from fakes.specs import gated
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import (
    OperationCost,
    expert_letter,
    experts_asked,
    letter_names,
    load_letters,
    load_values,
    window_letters,
)
from paredown.cost.operations import operations
from paredown.cost.step_cost import prefill_load
from paredown.spec.experts import Experts
from paredown.spec.model import ModelSpec


@given(specs(), st.integers(1, 30), st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_every_letter_has_its_number(spec: ModelSpec, num_tokens: int, start: int) -> None:
    load = prefill_load(num_tokens, start, spec.windows)
    letters = load_letters(load, spec)
    assert tuple(letters) == letter_names(spec)
    assert tuple(letters.values()) == load_values(load, spec)
    assert len(letters) == 4 + 2 * len(spec.windows) + len(spec.expert_kinds)
    assert (letters["t"], letters["r"]) == (num_tokens, 1)
    assert (letters["p"], letters["c"]) == (load.attention_pairs, load.kv_tokens_read)
    for number in range(len(spec.windows)):
        pairs, keys = window_letters(number)
        assert letters[pairs] == load.windowed_pairs[number]
        assert letters[keys] == load.windowed_kv_tokens_read[number]
    for number, kind in enumerate(spec.expert_kinds):
        assert letters[expert_letter(number)] == experts_asked(kind, num_tokens)


@given(experts(), st.integers(1, 200), st.integers(1, 50))
def test_more_tokens_ask_more_experts_up_to_all(found: Experts, num_tokens: int, more: int) -> None:
    asked = experts_asked(found, num_tokens)
    assert found.num_per_token - 1e-9 <= asked <= found.num
    assert asked <= experts_asked(found, num_tokens + more) + 1e-9
    assert asked <= num_tokens * found.num_per_token + 1e-9
    assert experts_asked(found, 1) == pytest.approx(found.num_per_token)
    assert experts_asked(found, 1e9) == found.num


@pytest.mark.parametrize(
    ("num", "num_per_token", "num_tokens"), [(8, 2, 3), (60, 4, 20), (5, 5, 2)]
)
def test_the_mean_is_that_of_tokens_that_choose_at_random(
    num: int, num_per_token: int, num_tokens: int
) -> None:
    rng, asked = np.random.default_rng(0), []
    for _ in range(400):
        chosen = [rng.choice(num, num_per_token, replace=False) for _ in range(num_tokens)]
        asked.append(len(np.unique(chosen)))
    kind = Experts(
        num=num, num_per_token=num_per_token, size=8, is_normalized=True, is_gated=True,
        activation="silu",
    )  # fmt: skip
    error = np.std(asked) / len(asked) ** 0.5
    assert abs(np.mean(asked) - experts_asked(kind, num_tokens)) <= 5 * error + 1e-9


@given(specs(), st.integers(1, 30), st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_all_layers_together_are_so_many_times_one(
    spec: ModelSpec, num_tokens: int, start: int
) -> None:
    load = prefill_load(num_tokens, start, spec.windows)
    letters = load_letters(load, spec)
    for one in operations(spec, ModelFormats()):
        cost = one.at(letters)
        assert cost.flops == pytest.approx(one.count * one.flops.value(letters))
        assert cost.bytes == pytest.approx(one.count * one.bytes.value(letters))
        assert cost.bytes == cost.weight_bytes + cost.kv_bytes + cost.activation_bytes
        ratio = one.intensity.over.value(letters) / one.intensity.under.value(letters)
        assert cost.intensity == pytest.approx(ratio)
        assert one.count - 1 <= one.computed_count(load) <= one.count
        assert one.computed_count(replace(load, num_logits=num_tokens)) == one.count


def test_what_moves_nothing_has_no_intensity() -> None:
    nothing = OperationCost(
        operation=operations(gated(), ModelFormats())[0],
        flops=0.0, weight_bytes=0.0, kv_bytes=0.0, activation_bytes=0.0,
    )  # fmt: skip
    assert nothing.intensity == 0
