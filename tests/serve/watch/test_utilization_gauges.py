"""Shares of the machine: of the last seconds, and of machines that were measured."""

import pytest

from fakes.specs import gated
from paredown.cost.machines import MACHINES
from paredown.cost.model_formats import ModelFormats
from paredown.cost.step_sums import RoofTimes, StepSums
from paredown.serve.watch import utilization_gauges
from paredown.serve.watch.utilization_gauges import PERIOD_S, UtilizationGauges

ROOFS = RoofTimes.of(gated(), ModelFormats(), MACHINES["xeon-emr"])


def after(num_steps: int, seconds: float) -> StepSums:
    return StepSums(
        seconds=seconds,
        steps_by_tokens={1: num_steps},
        num_logits=num_steps,
        attention_pairs=num_steps,
        kv_tokens_read=num_steps,
    )


def test_nothing_is_said_of_a_machine_that_was_not_measured():
    assert UtilizationGauges().gauges(after(10, 1.0)) == []


def test_the_shares_are_those_of_the_last_seconds(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(utilization_gauges.time, "monotonic", lambda: now_s[0])
    found = UtilizationGauges()
    found.roofs = ROOFS
    assert [one.values[""] for one in found.gauges(StepSums())] == [0.0, 0.0]
    wanted = ROOFS.utilization(after(10, 1.0))
    mbu, mfu = found.gauges(after(10, 1.0))
    assert (mbu.name, mfu.name) == ("mbu", "mfu")
    assert mbu.values[""] == pytest.approx(wanted.memory)
    assert mfu.values[""] == pytest.approx(wanted.arithmetic)
    # Twice as fast from then on: what was before is forgotten.
    num_steps, seconds = 10, 1.0
    for _ in range(3):
        now_s[0] += PERIOD_S
        num_steps, seconds = num_steps + 20, seconds + 1.0
        mbu, _ = found.gauges(after(num_steps, seconds))
    assert mbu.values[""] == pytest.approx(2 * wanted.memory)
