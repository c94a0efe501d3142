"""Traces of invented requests whose prompts share leading blocks."""

from collections.abc import Sequence

from hypothesis import strategies as st

from paredown.evaluate.load.arrival import BLOCK_TOKENS, Arrival
from paredown.plan.trace import Trace


def make_trace(requests: Sequence[tuple[float, int, int, tuple[int, ...]]]) -> Trace:
    """Makes a trace of (seconds, prompt, answer, blocks)."""
    return Trace(
        name="made-up",
        requests=tuple(
            Arrival(at_s=at, num_input_tokens=prompt, num_output_tokens=answer, block_ids=blocks)
            for at, prompt, answer, blocks in requests
        ),
    )


@st.composite
def traces(draw: st.DrawFn, *, max_requests: int = 8, max_tokens: int = 2000) -> Trace:
    """Draws a trace like those of a service: the first request arrives at once, later ones in
    order, and equal blocks follow equal blocks only."""
    gaps = draw(st.lists(st.integers(0, 9), min_size=1, max_size=max_requests - 1))
    gaps[-1] += 1
    times, numbers, requests = [0.0], dict[tuple[int, ...], int](), []
    for gap in gaps:
        times.append(times[-1] + gap / 4)
    for at in times:
        prompt = draw(st.integers(1, max_tokens))
        path = draw(
            st.lists(
                st.integers(0, 1),
                min_size=-(-prompt // BLOCK_TOKENS),
                max_size=-(-prompt // BLOCK_TOKENS),
            )
        )
        prefixes = [tuple(path[: index + 1]) for index in range(len(path))]
        blocks = tuple(numbers.setdefault(one, len(numbers)) for one in prefixes)
        requests.append((at, prompt, draw(st.integers(1, 50)), blocks))
    return make_trace(requests)
