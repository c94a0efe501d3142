"""AnswerStats: how long answers took and how long they were, as the engine gave them out."""

import time
from collections import Counter
from collections.abc import Iterable

from paredown.engine.request import Request
from paredown.engine.request_output import RequestOutput
from paredown.serve.watch.histogram import Histogram

# Seconds: of a first token, between tokens, and of a whole answer. Tokens of a text.
FIRST_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
TOKEN_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 5, 30)
ANSWER_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
NUM_TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


class AnswerStats:
    """The engine's thread counts answers; the event loop counts prompts, and reads. Times begin
    with a request's arrival at the engine, and do not depend on how fast its client reads."""

    def __init__(self) -> None:
        self.first_token_s = Histogram(FIRST_TOKEN_S)
        self.inter_token_s = Histogram(TOKEN_S)
        self.mean_token_s = Histogram(TOKEN_S)
        self.answer_s = Histogram(ANSWER_S)
        self.queue_s = Histogram(FIRST_TOKEN_S)
        self.prefill_s = Histogram(FIRST_TOKEN_S)
        self.decode_s = Histogram(ANSWER_S)
        self.running_s = Histogram(ANSWER_S)
        self.prompt_tokens = Histogram(NUM_TOKENS)
        self.generated_tokens = Histogram(NUM_TOKENS)
        self.num_prompt_tokens = 0
        self.num_generated_tokens = 0
        self.num_by_reason = Counter[str]()
        # When each unfinished answer had its last token, and when the last step ended.
        self._last_s: dict[int, float] = {}
        self._step_s = 0.0

    def note_prompt(self, num_tokens: int) -> None:
        """Counts a prompt that was taken in, once for all answers to it. For the event loop."""
        self.num_prompt_tokens += num_tokens
        self.prompt_tokens.observe(num_tokens)

    def observe(self, outputs: Iterable[RequestOutput]) -> None:
        """Counts what a step gave out."""
        now_s, last_s = time.monotonic(), self._last_s
        step_s, self._step_s = self._step_s, now_s
        num_tokens = num_after_step = 0
        for output in outputs:
            request, num_own = output.request, len(output.token_ids)
            if num_own:
                num_tokens += num_own
                before_s = last_s.get(request.id)
                last_s[request.id] = now_s
                if before_s is None:
                    self._begin(request, now_s)
                elif num_own == 1 and before_s == step_s:
                    num_after_step += 1
                else:
                    self.inter_token_s.observe((now_s - before_s) / num_own, num_own)
            if output.finish_reason is not None:
                self._end(request, output.finish_reason, last_s.pop(request.id, now_s))
        self.num_generated_tokens += num_tokens
        # Most tokens come one step after another, for all answers alike.
        if num_after_step:
            self.inter_token_s.observe(now_s - step_s, num_after_step)

    def _begin(self, request: Request, now_s: float) -> None:
        """Counts a first token."""
        self.first_token_s.observe(now_s - request.arrival_s)
        first_step_s = now_s if request.first_step_s is None else request.first_step_s
        self.queue_s.observe(first_step_s - request.arrival_s)
        self.prefill_s.observe(now_s - first_step_s)

    def _end(self, request: Request, reason: str, last_s: float) -> None:
        self.num_by_reason[reason] += 1
        first_s = request.first_token_s
        if first_s is None:  # it ended before its first token, or asked for none
            return
        num_tokens = request.num_generated_tokens
        self.answer_s.observe(last_s - request.arrival_s)
        self.generated_tokens.observe(num_tokens)
        self.decode_s.observe(max(0.0, last_s - first_s))
        if request.first_step_s is not None:
            self.running_s.observe(max(0.0, last_s - request.first_step_s))
        if num_tokens > 1:
            self.mean_token_s.observe(max(0.0, last_s - first_s) / (num_tokens - 1))
