"""A sweep that was made by known coefficients gives them back."""

from dataclasses import asdict, replace
from functools import partial

import pytest

from fakes.specs import flat_spec
from paredown.cost.fit_steps import (
    MeasuredEngineStep,
    MeasuredStep,
    Sweep,
    _fit_engine,
    fit_steps,
)
from paredown.cost.machines import MACHINES
from paredown.cost.model_formats import ModelFormats
from paredown.cost.predicted_step import PredictedStep
from paredown.cost.step_cost import StepLoad, decode_load, prefill_load, prompts_load
from paredown.cost.step_fit import (
    AttentionRates,
    EngineRates,
    LinearRates,
    StepFit,
    StepRates,
)
from paredown.spec.model import ModelSpec
from paredown.spec.rotary import Rotary
from paredown.spec.weight import WeightSpec

SIZES = (1, 8, 64, 512)
PROMPTS = (prefill_load(16), prefill_load(400), prompts_load(8, 32))
BF16, INT4 = WeightSpec(dtype="bf16"), WeightSpec(dtype="int4", group_size=32)


def model(hidden: int, num_layers: int) -> ModelSpec:
    return flat_spec(
        family="llama",
        vocab_size=512,
        hidden_size=hidden,
        num_layers=num_layers,
        num_heads=hidden // 32,
        num_kv_heads=hidden // 64,
        head_dim=32,
        intermediate_size=3 * hidden,
        max_positions=4096,
        positions=Rotary(theta=1e4),
        norm="rms",
        norm_eps=1e-5,
        activation="silu",
        gated=True,
    )


WARM = EngineRates(
    step_s=2e-5,
    token_s=2e-7,
    request_s=7e-6,
    arrival_s=3e-5,
    prompt_s=5e-5,
    logit_s=5e-10,
)
COLD = EngineRates(
    step_s=8e-5,
    token_s=3e-7,
    request_s=1e-5,
    arrival_s=9e-5,
    prompt_s=2e-4,
    logit_s=6e-10,
)
TRUTH = StepFit(
    roofs=MACHINES["xeon-emr"],
    isa="amx",
    num_threads=2,
    bandwidths=((1e6, 2e11), (1e8, 3e10), (1e9, 2.5e10)),
    linear={
        "bf16": LinearRates(
            num_tokens=SIZES,
            seconds_per_mac=(8e-12, 3e-12, 1.5e-12, 9e-13),
            memory_efficiency=0.92,
        ),
        "int4-g32": LinearRates(
            num_tokens=SIZES,
            seconds_per_mac=(6e-12, 4e-12, 2e-12, 1.3e-12),
            memory_efficiency=0.86,
        ),
    },
    attention={"bf16": AttentionRates(key_s=2e-10, pair_s=3e-12)},
    rates=StepRates(step_s=1e-5, layer_s=8e-6, column_s=3e-11, logit_s=1e-10),
    engine=((2e6, WARM), (2e7, COLD)),
)


def step_of(truth: StepFit, spec: ModelSpec, weights: WeightSpec, load: StepLoad) -> MeasuredStep:
    formats = ModelFormats(linear=weights, output=weights)
    step = PredictedStep(spec=spec, formats=formats, fit=truth, with_engine=False)
    return MeasuredStep(spec=spec, formats=formats, load=load, seconds=step.step_s(load))


def calibrated(truth: StepFit) -> StepFit:
    """From a sweep of a machine of which `truth` holds."""
    measured = partial(step_of, truth)

    def beside(spec: ModelSpec, load: StepLoad, rates: EngineRates) -> MeasuredEngineStep:
        return MeasuredEngineStep(
            executor=measured(spec, BF16, load),
            engine_s=rates.seconds(load, spec.vocab_size),
        )

    models = [model(256, 4), model(768, 4), model(2048, 3)]
    sweep = Sweep(
        small=[measured(model(64, n), BF16, prefill_load(t)) for n in (1, 12) for t in SIZES],
        linear={
            weights.name: [measured(one, weights, prefill_load(t)) for one in models for t in SIZES]
            for weights in (BF16, INT4)
        },
        attention={
            "bf16": [
                (
                    measured(models[1], BF16, decode_load(n, 1)),
                    measured(models[1], BF16, decode_load(n, 4096)),
                )
                for n in (1, 8)
            ]
            + [
                (
                    measured(models[1], BF16, prefill_load(64)),
                    measured(models[1], BF16, prefill_load(64, 2048)),
                )
            ]
        },
        engine=[
            [
                beside(replace(spec, vocab_size=v), load, rates)
                for v in (512, 16384)
                for load in (*(decode_load(n, 8) for n in (1, 8, 32)), *PROMPTS)
            ]
            for spec, rates in ((model(64, 1), WARM), (model(256, 4), COLD))
        ],
    )
    return fit_steps(
        sweep, roofs=truth.roofs, isa="amx", num_threads=2, bandwidths=truth.bandwidths
    )


@pytest.fixture(scope="module")
def found() -> StepFit:
    return calibrated(TRUTH)


def test_no_weights_are_read_faster_than_memory_gives_them() -> None:
    """Where the swept models lie in a cache that the probe of the bandwidth did not find."""
    cached = replace(TRUTH.linear["int4-g32"], memory_efficiency=4.0)
    found = calibrated(replace(TRUTH, linear={**TRUTH.linear, "int4-g32": cached}))
    assert found.linear["int4-g32"].memory_efficiency <= 1.01
    assert found.linear["bf16"].memory_efficiency == pytest.approx(0.92, rel=0.1)


def test_what_the_engine_adds_is_found(found: StepFit) -> None:
    assert found.rates.logit_s == pytest.approx(1e-10, rel=0.1)
    for (_, rates), truth in zip(found.engine, (WARM, COLD), strict=True):
        assert asdict(rates) == pytest.approx(asdict(truth), rel=1e-3)


def test_attention_is_found(found: StepFit) -> None:
    assert found.attention["bf16"].key_s == pytest.approx(2e-10, rel=0.02)
    assert found.attention["bf16"].pair_s == pytest.approx(3e-12, rel=0.02)


@pytest.mark.parametrize("weights", [BF16, INT4], ids=lambda one: one.name)
def test_steps_of_another_model_are_predicted(found: StepFit, weights: WeightSpec) -> None:
    """One larger than all that were measured, at numbers of tokens between theirs."""
    spec = replace(model(1536, 12), vocab_size=32000)
    formats = ModelFormats(linear=weights, output=weights)
    for load in (decode_load(1, 100), decode_load(4, 2000), prefill_load(300, 100)):
        wanted = PredictedStep(spec=spec, formats=formats, fit=TRUTH).step_s(load)
        predicted = PredictedStep(spec=spec, formats=formats, fit=found).step_s(load)
        assert predicted == pytest.approx(wanted, rel=0.05)


def test_a_calibration_survives_json(found: StepFit) -> None:
    assert StepFit.from_json(found.as_json()) == found
    with pytest.raises(ValueError, match="version"):
        StepFit.from_json(found.as_json() | {"version": -1})


def test_errors_of_the_engine_are_relative() -> None:
    """One step that took a second and two: 1.2 s are as far from both, in shares of each."""
    load, spec = decode_load(1, 8), model(64, 1)
    executor = step_of(TRUTH, spec, BF16, load)
    steps = [MeasuredEngineStep(executor=executor, engine_s=one) for one in (1.0, 2.0)]
    _, rates = _fit_engine(steps, TRUTH)
    assert rates.seconds(load, spec.vocab_size) == pytest.approx(1.2)
