"""The cost of encoder-decoders: each product counted once, and seconds that add up."""

from dataclasses import replace

import pytest

from cost.test_fit_steps import TRUTH
from paredown.cost.inspection import inspect_model
from paredown.cost.machine_profile import MachineProfile
from paredown.cost.memory import generation_flops
from paredown.cost.model_formats import ModelFormats
from paredown.cost.operation import load_letters
from paredown.cost.operations import operations
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.roofline_step import RooflineStep
from paredown.cost.serving import BatchLoad
from paredown.cost.step_cost import StepLoad, decode_load, encoded_prompts_load, reading_across
from paredown.errors import UnsupportedError
from paredown.models.config import spec_from_config
from paredown.plan.planned_machine import PlannedMachine
from paredown.spec.model import ModelSpec

D, HEADS, F, V, ENCODER_LAYERS, DECODER_LAYERS = 128, 4, 256, 1000, 3, 2
SPEC = spec_from_config(
    {
        "model_type": "t5",
        "d_model": D,
        "d_kv": D // HEADS,
        "num_heads": HEADS,
        "d_ff": F,
        "num_layers": ENCODER_LAYERS,
        "num_decoder_layers": DECODER_LAYERS,
        "vocab_size": V,
        "feed_forward_proj": "gated-gelu",
        "n_positions": 4096,
    }
)
BF16 = ModelFormats()
PROFILE = MachineProfile(key="here", roofs=TRUTH.roofs, fit=TRUTH)
PROMPT, BATCH = 100, 3


def flops(load: StepLoad, spec: ModelSpec = SPEC) -> float:
    letters = load_letters(load, spec)
    return sum(one.count * one.flops.value(letters) for one in operations(spec, BF16))


def test_products_are_counted_as_the_layers_have_them() -> None:
    """Two operations for each weight and token, and four for each pair and column."""
    encoder_layer, prompts = 4 * D * D + 3 * D * F, BATCH * PROMPT
    encoder = 2 * prompts * ENCODER_LAYERS * encoder_layer
    encoder += 4 * BATCH * PROMPT**2 * D * ENCODER_LAYERS
    across = 2 * prompts * DECODER_LAYERS * 2 * D * D
    token = 2 * DECODER_LAYERS * (6 * D * D + 3 * D * F) + 2 * D * V
    pairs = 4 * D * DECODER_LAYERS
    first = encoder + across + BATCH * (token + pairs * (1 + PROMPT))
    assert flops(encoded_prompts_load(BATCH, PROMPT)) == first
    later = reading_across(decode_load(BATCH, 7), PROMPT)
    assert flops(later) == BATCH * (token + pairs * (7 + PROMPT))
    steps = [encoded_prompts_load(1, PROMPT)]
    steps += [reading_across(decode_load(1, 1 + i), PROMPT) for i in range(1, 5)]
    answer = generation_flops(SPEC, prompt_tokens=PROMPT, new_tokens=5, with_cache=True)
    assert answer == pytest.approx(sum(map(flops, steps)))


def test_a_step_without_prompts_reads_no_weights_of_the_encoder() -> None:
    def weight_bytes(load: StepLoad) -> float:
        letters = load_letters(load, SPEC)
        counted = [one for one in operations(SPEC, BF16) if one.kind == "linear"]
        return sum(one.count * one.weight_bytes.value(letters) for one in counted)

    decoder = DECODER_LAYERS * (6 * D * D + 3 * D * F) + D * V
    encoder = ENCODER_LAYERS * (4 * D * D + 3 * D * F) + DECODER_LAYERS * 2 * D * D
    later = reading_across(decode_load(BATCH, 7), PROMPT)
    assert weight_bytes(later) == 2 * decoder
    assert weight_bytes(encoded_prompts_load(1, PROMPT)) == 2 * (decoder + encoder)


@pytest.mark.parametrize(
    "load", [encoded_prompts_load(2, PROMPT), reading_across(decode_load(5, 9), 700)]
)
def test_seconds_of_operations_are_those_of_the_step(load: StepLoad) -> None:
    """All but the constants of step and layers, and what is written between products."""
    rates = replace(TRUTH.rates, step_s=0.0, layer_s=0.0, column_s=0.0, logit_s=0.0)
    cost = PredictedStep(
        spec=SPEC, formats=BF16, fit=replace(TRUTH, rates=rates), with_engine=False
    )
    counted = [one.at(load_letters(load, SPEC)) for one in operations(SPEC, BF16)]
    parts = [cost._fitted_operation_s(one, load) for one in counted]
    total = sum(one for one in parts if one is not None)
    assert total == pytest.approx(cost.fitted_s(load), rel=1e-6)


def test_longer_prompts_cost_an_answer_little_and_the_first_token_much() -> None:
    cost = PredictedStep(spec=SPEC, formats=BF16, fit=TRUTH)
    later = [cost.step_s(reading_across(decode_load(1, 9), size)) for size in (100, 1000)]
    first = [cost.step_s(encoded_prompts_load(1, size)) for size in (100, 1000)]
    assert later[0] < later[1] < 3 * later[0]
    assert first[1] > 5 * first[0]


def test_inspection_has_the_rows_of_both_stacks() -> None:
    found = inspect_model(
        SPEC, BF16, BatchLoad(batch=4, prompt_tokens=PROMPT, context=PROMPT + 20), PROFILE
    )
    names = [one.operation.name for one in found.operations["prefill"]]
    assert {"encoder's q", "encoder's scores", "cross k", "cross scores", "q"} <= set(names)
    decoded = {one.operation.name: one.flops for one in found.operations["decode"]}
    assert decoded["encoder's q"] == decoded["cross k"] == 0 < decoded["cross q"]
    assert found.times.ttft_s > found.times.tpot_s > 0


def test_loads_are_not_simulated() -> None:
    machine = PlannedMachine(profile=PROFILE)
    with pytest.raises(UnsupportedError, match="encoder-decoders are not simulated"):
        machine.num_pages(SPEC, BF16, max_running=4, max_step_tokens=64)


def test_a_step_takes_the_same_time_whatever_was_asked_before() -> None:
    later = reading_across(decode_load(BATCH, 7), PROMPT)
    fitted = PredictedStep(spec=SPEC, formats=BF16, fit=TRUTH)
    roofs = RooflineStep(spec=SPEC, formats=BF16, roofs=TRUTH.roofs, efficiency=None)
    for cost in (fitted, roofs):
        fresh = replace(cost).step_s(later)
        cost.step_s(encoded_prompts_load(BATCH, PROMPT))
        assert cost.step_s(later) == fresh
