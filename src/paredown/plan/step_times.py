"""StepTimes: the seconds of simulated steps, from a StepCost.

The time of a decode step grows with the tokens of its contexts. For each number of requests this
is approximated by a chain of straight lines. The cost model is evaluated at contexts that differ
by a factor of two. Where the model itself is a straight line (bytes over a bandwidth, operations
over a peak) the result is exact, and n steps have a closed formula.
"""

from paredown.cost.step_cost import StepCost, StepLoad, chunk_kv_tokens, chunk_pairs
from paredown.engine.schedule.step_plan import Chunk


class StepTimes:
    """`windows` are the distinct windows of the model's layers."""

    def __init__(self, cost: StepCost, windows: tuple[int, ...] = ()) -> None:
        self._cost = cost
        self._windows = windows
        self._lines: dict[tuple[int, int], tuple[float, float]] = {}

    def decode_steps(self, num_requests: int, context: int) -> tuple[float, float, int]:
        """Returns the seconds of a decode step, the rise with each following step, and how many
        steps follow that line, this one included. The step has `num_requests` requests that attend
        to `context` tokens in all. With a window there is no such line, so that is one step."""
        doubling = context.bit_length()
        line = self._lines.get((num_requests, doubling))
        if line is None:
            line = self._lines[num_requests, doubling] = self._line(num_requests, doubling)
        base_s, token_s = line
        num_steps = 1 + ((1 << doubling) - 1 - context) // num_requests
        return base_s + token_s * context, token_s * num_requests, num_steps

    def step_s(self, chunks: list[Chunk], num_coasting: int, coasting_context: int) -> float:
        """Returns the seconds of a step with chunks and one token for each of `num_coasting`
        requests."""
        num_tokens = num_logits = num_coasting
        pairs = kv_tokens = coasting_context
        num_first_tokens = 0
        for request, size in chunks:
            start = request.num_computed_tokens
            num_tokens += size
            if start + size == request.num_tokens:
                num_logits += 1
                num_first_tokens += request.num_generated_tokens == 0
            pairs += chunk_pairs(start, size)
            kv_tokens += start + size
        return self._cost.step_s(
            StepLoad(
                num_tokens=num_tokens,
                num_logits=num_logits,
                num_requests=num_coasting + len(chunks),
                attention_pairs=pairs,
                kv_tokens_read=kv_tokens,
                windowed_pairs=tuple(
                    sum(chunk_pairs(one.num_computed_tokens, size, window) for one, size in chunks)
                    for window in self._windows
                ),
                windowed_kv_tokens_read=tuple(
                    sum(
                        chunk_kv_tokens(one.num_computed_tokens, size, window)
                        for one, size in chunks
                    )
                    for window in self._windows
                ),
                num_first_tokens=num_first_tokens,
            )
        )

    def _line(self, num_requests: int, doubling: int) -> tuple[float, float]:
        """Returns the line's (seconds at 0, seconds per token) from 2^(doubling - 1) tokens, or
        from one token per request, to twice that."""
        low = max(1 << (doubling - 1), num_requests)
        high = max(1 << doubling, low + 1)
        low_s, high_s = self._decode_s(num_requests, low), self._decode_s(num_requests, high)
        token_s = (high_s - low_s) / (high - low)
        return low_s - token_s * low, token_s

    def _decode_s(self, num_requests: int, context: int) -> float:
        return self.step_s([], num_requests, context)
