"""Invented runs of a load, and an executor that records its calls."""

from dataclasses import replace

from fakes.toy_executor import ToyExecutor
from paredown.evaluate.load.run_load import LoadRun, Moment, Served
from paredown.kernels.thread_plan import ThreadPlan


class CountedExecutor(ToyExecutor):
    """Records its arguments."""

    weight_bytes = 1000
    kv_token_bytes = 10
    threads = ThreadPlan(prefill=1, decode=1)
    isa = "generic"

    def step(self, slices):
        self.calls = [*getattr(self, "calls", []), [replace(one) for one in slices]]
        return super().step(slices)


def served(arrival_s: float, *times: float, num_tokens: int | None = None, **more) -> Served:
    return Served(
        arrival_s=arrival_s,
        num_input_tokens=10,
        first_step_s=arrival_s + 0.5,
        token_times=list(times),
        num_tokens=len(times) if num_tokens is None else num_tokens,
        **more,
    )


def load_run(*requests: Served, **more) -> LoadRun:
    values = {
        "moments": [Moment(1.0, 2, 3, 0.25), Moment(2.0, 1, 4, 0.5)],
        "duration_s": 10.0,
        "model_s": 5.0,
        "num_steps": 4,
        "num_bytes": 2_000_000_000,
        "num_flops": 1e12,
        "num_preemptions": 1,
    }
    return LoadRun(served=list(requests), **(values | more))
