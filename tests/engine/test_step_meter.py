"""The meter of an engine against the loads of its steps."""

import pytest

from fakes.toy_executor import ToyExecutor, ToyTokenizer, toy_spec
from paredown.cost.step_cost import chunk_pairs
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.engine.step_meter import StepMeter
from paredown.executors.protocol import SequenceSlice


def test_steps_of_an_engine_are_counted_once_each() -> None:
    executor = ToyExecutor(num_pages=64, spec=toy_spec(max_positions=256))
    engine = Engine(executor, ToyTokenizer(), ScheduleConfig(max_step_tokens=8))
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    for prompt in (list(range(20)), [1, 2, 3]):
        engine.submit(prompt, params)
    num_tokens = 0
    while engine.has_work:
        num_tokens += sum(len(one.token_ids) for one in engine.step())
    sums = engine.meter.sums()
    assert engine.meter.num_steps == sums.num_steps
    # The last token of an answer is never computed.
    assert sums.num_tokens == 20 + 3 + num_tokens - 2
    assert sums.num_logits == num_tokens == 24
    assert sums.attention_pairs == chunk_pairs(0, 20 + 11) + chunk_pairs(0, 3 + 11)
    assert sums.seconds > 0


@pytest.mark.parametrize("windows", [(), (4,), (4, 9)])
def test_a_step_again_is_a_step_of_the_next_tokens(windows) -> None:
    again, anew = StepMeter(windows), StepMeter(windows)
    for number in range(6):
        slices = [SequenceSlice([7], start + number, (), 1) for start in (3, 8)]
        anew.add(slices, 0.5)
        if number:
            again.add_again(0.5)
        else:
            again.add(slices, 0.5)
    assert again.sums() == anew.sums()
    assert anew.sums().kv_tokens_read == sum(4 + i + 9 + i for i in range(6))
