"""Encoder-decoder and decoder: when answers are there, and what the cost model says of them."""

from dataclasses import replace

from benchmarks.two_stacks.predict import at_bandwidth, predicted_seconds
from benchmarks.two_stacks.run import Load, Step, median_of, seconds_to_outputs
from benchmarks.two_stacks.shapes import BASE, TINY
from cost.test_fit_steps import TRUTH
from paredown.cost.model_formats import ModelFormats
from paredown.cost.predicted_step import PredictedStep


def test_an_output_is_there_when_every_request_has_it() -> None:
    steps = [Step(1.0, 0), Step(2.0, 1), Step(4.0, 3)]
    assert seconds_to_outputs(steps, [1, 2, 3, 4]) == {1: 3.0, 2: 7.0, 3: 7.0}


def test_a_step_counts_with_its_median() -> None:
    rounds = [
        [Step(1.0, 1), Step(9.0, 2)],
        [Step(3.0, 1), Step(5.0, 2)],
        [Step(2.0, 1), Step(7, 2)],
    ]
    assert median_of(rounds) == [Step(2.0, 1), Step(7.0, 2)]


def test_both_models_have_as_many_weights_outside_the_tables() -> None:
    assert len({spec.num_linear_parameters() for spec in BASE.specs().values()}) == 1


def test_slower_memory_makes_answers_slower_where_it_is_the_limit() -> None:
    load = Load(batch=1, prompt_tokens=8, output_tokens=4)
    rate = 3e10
    fit = replace(TRUTH, bandwidths=((1.0, 10 * rate), (1e3, rate)))
    for spec in TINY.specs().values():
        cost = PredictedStep(spec=spec, formats=ModelFormats(), fit=fit)
        plain, slow = (
            predicted_seconds(one, load, [1, 4]) for one in (cost, at_bandwidth(cost, 1))
        )
        assert plain[1] < plain[4]
        assert slow[4] > plain[4]
        kept, changed = at_bandwidth(cost, rate / 2).fit.bandwidths
        assert kept == (1.0, 10 * rate)
        assert changed == (1e3, rate / 2)
