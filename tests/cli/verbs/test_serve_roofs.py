"""The machine's roofs, where `paredown doctor --sweep` has kept them, and the gauges made of
them."""

from types import SimpleNamespace

import pytest

from paredown.cli.verbs import serve_roofs
from paredown.cost.machines import MACHINES
from paredown.engine.build import build
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.executors.run_options import RunOptions
from paredown.kernels.thread_plan import ThreadPlan
from paredown.models.checkpoint import Checkpoint
from paredown.models.resolve import resolve_model
from paredown.models.text.tokenizer import Tokenizer
from paredown.serve.watch.utilization_gauges import UtilizationGauges


@pytest.fixture(scope="module")
def loaded():
    checkpoint = Checkpoint.open(resolve_model(None))
    options = RunOptions(num_pages=64, threads=ThreadPlan(prefill=1, decode=1))
    engine = build(checkpoint, options, tokenizer=Tokenizer.open(checkpoint.path)).engine
    return checkpoint, engine


def test_a_machine_that_was_not_measured_has_no_gauges(loaded, monkeypatch):
    checkpoint, engine = loaded
    monkeypatch.setattr(serve_roofs, "find_step_fit", lambda *machine: None)
    assert serve_roofs.known_roofs(checkpoint, engine.executor) is None


def test_the_gauges_of_a_machine_that_was_measured_are_shares_of_it(loaded, monkeypatch):
    checkpoint, engine = loaded
    roofs = MACHINES["xeon-emr"]
    fit = SimpleNamespace(roofs=roofs, bandwidth=lambda num_bytes: roofs.bandwidth_bytes_per_s)
    asked = []
    monkeypatch.setattr(
        serve_roofs, "find_step_fit", lambda *machine: (asked.append(machine), fit)[1]
    )
    gauges = UtilizationGauges()
    gauges.roofs = serve_roofs.known_roofs(checkpoint, engine.executor)
    assert asked[0][1:] == (engine.executor.arithmetic["isa"], 1)
    engine.submit([1, 2, 3], SamplingParams(max_tokens=20, ignore_eos=True))
    while engine.has_work:
        engine.step()
    sums = engine.meter.sums()
    mbu, mfu = (one.values[""] for one in gauges.gauges(sums))
    # Each step reads all weights, and little more.
    least = sums.num_steps * engine.executor.weight_bytes * 0.7
    most = sums.num_steps * engine.executor.weight_bytes * 1.5
    used = mbu * sums.seconds * roofs.bandwidth_bytes_per_s
    assert least < used < most
    assert 0 < mfu < 1
