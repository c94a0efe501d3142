"""The simulator against the engine itself, with a clock on which each step takes a second: whatever
comes when, each request has its first token and its last after the same step."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.toy_executor import ToyExecutor, ToyTokenizer, toy_spec
from paredown.cost.step_cost import StepLoad
from paredown.engine.engine import Engine
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.schedule.counted_request import CountedRequest
from paredown.engine.schedule.schedule_config import ScheduleConfig
from paredown.plan.replica import Replica
from paredown.plan.step_times import StepTimes
from paredown.spec.kv import PAGE_SIZE

SPEC = toy_spec(max_positions=160)
# When it comes, which family its prompt is of and how many pages it shares, tokens of its own, and
# of the answer.
Asked = tuple[float, int, int, int, int]
ASKED = st.lists(
    st.tuples(
        st.integers(0, 60).map(float),
        st.integers(0, 1),
        st.integers(0, 3),
        st.integers(1, 40),
        st.integers(1, 50),
    ),
    min_size=1,
    max_size=8,
).map(sorted)
CONFIGS = st.builds(
    ScheduleConfig,
    max_step_tokens=st.sampled_from([8, 32, 512]),
    max_running=st.sampled_from([1, 3, 8]),
    prefix_cache=st.booleans(),
)


class SecondsCost:
    def step_s(self, step: StepLoad) -> float:
        return 1.0


def run_engine(
    asked: list[Asked], num_pages: int, config: ScheduleConfig
) -> list[tuple[float, float]]:
    engine = Engine(ToyExecutor(num_pages=num_pages, spec=SPEC), ToyTokenizer(), config)
    coming, now_s = list(asked), 0.0
    times: dict[int, list[float]] = {}
    while coming or engine.has_work:
        if not engine.has_work:
            now_s = max(now_s, coming[0][0])
        while coming and coming[0][0] <= now_s:
            _, family, num_shared, num_own, num_output = coming.pop(0)
            shared = [1 + family] * (num_shared * PAGE_SIZE)
            own = [10 + engine._num_submitted] * num_own
            params = SamplingParams(temperature=0, max_tokens=num_output, ignore_eos=True)
            times[engine.submit(shared + own, params).id] = []
        outputs = engine.step()
        now_s += 1
        for one in outputs:
            if one.token_ids:
                times[one.request.id].append(now_s)
    return [(times[number][0], times[number][-1]) for number in range(len(asked))]


def run_simulator(
    asked: list[Asked], num_pages: int, config: ScheduleConfig
) -> list[tuple[float, float]]:
    times: dict[int, tuple[float, float]] = {}

    def note(one: CountedRequest) -> None:
        assert one.first_token_s is not None
        assert one.finish_s is not None
        times[one.id] = (one.first_token_s, one.finish_s)

    replica = Replica(
        num_pages=num_pages,
        max_positions=SPEC.max_positions,
        config=config,
        times=StepTimes(SecondsCost()),
        on_finish=note,
    )
    for number, (time_s, family, num_shared, num_own, num_output) in enumerate(asked):
        while replica.next_s < time_s:
            replica.wake()
        request = CountedRequest(
            id=number,
            num_prompt_tokens=num_shared * PAGE_SIZE + num_own,
            num_output_tokens=num_output,
            arrival_s=time_s,
            # Pages of a family hold the same token over and over.
            page_contents=[family] * num_shared,
        )
        replica.submit(request, time_s)
    while replica.next_s < math.inf:
        replica.wake()
    return [times[number] for number in range(len(asked))]


@settings(max_examples=60, deadline=None)
@given(asked=ASKED, num_pages=st.integers(10, 60), config=CONFIGS)
def test_the_same_steps(asked: list[Asked], num_pages: int, config: ScheduleConfig) -> None:
    found = run_simulator(asked, num_pages, config)
    assert found == run_engine(asked, num_pages, config)
