"""Admission: reserves the places of one request before any work is done for it."""

from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.serve.errors import HttpError
from paredown.serve.intake.budget import Hold
from paredown.serve.intake.intake import MAX_LOGPROBS, check_num_jobs
from paredown.serve.state import ServerState


class Admission:
    """Holds places in the engine, and memory for the log-probabilities that its answers may need
    and for the texts that they keep. Always close it."""

    def __init__(
        self,
        state: ServerState,
        num_prompts: int,
        params: SamplingParams,
        num_prompt_tokens: int = 0,
    ) -> None:
        """`num_prompt_tokens` is the most that the prompts may come to, for prompts that are
        scored. Raises HttpError for a request that can never be admitted, QueueFullError for one
        that cannot be now, and UnavailableError while there is no model."""
        check_num_jobs(num_prompts, params.n)
        self._state = state
        self._texts: list[Hold] = []
        self._logprobs = Hold(state.intake.logprobs)
        self._logprobs.add(self._num_logprobs(num_prompts, params, num_prompt_tokens))
        try:
            self.session = state.worker.admit(num_prompts * params.n)
        except BaseException:
            self._logprobs.release()
            raise

    def close(self) -> None:
        """Releases the places; a second call does nothing."""
        self._state.worker.close(self.session)
        self._logprobs.release()
        for held in self._texts:
            held.release()

    def keep_texts(self, num_bytes: int, client: str) -> None:
        """Holds memory for texts of the request that are kept until its answers have ended. Raises
        QueueFullError where all of them, or those of `client`, are too many."""
        held = Hold(self._state.intake.kept_texts, client)
        held.add(num_bytes)
        self._texts.append(held)

    def _num_logprobs(
        self, num_prompts: int, params: SamplingParams, num_prompt_tokens: int
    ) -> int:
        most = self._state.max_positions
        max_tokens = most if params.max_tokens is None else min(params.max_tokens, most)
        num_answers = num_prompts * params.n
        num = num_of_prompts = 0
        if params.logprobs is not None:
            num = num_answers * max_tokens * (params.logprobs + 1)
        if params.prompt_logprobs is not None:
            # The answers to a prompt share its log-probabilities.
            num_of_prompts = num_prompt_tokens * (params.prompt_logprobs + 1)
        if num + num_of_prompts > MAX_LOGPROBS:
            of_prompts = f" and {num_of_prompts} of the prompts" if num_of_prompts else ""
            raise HttpError(
                400,
                f"{num_answers} answers x {max_tokens} tokens x {(params.logprobs or 0) + 1} "
                f"log-probabilities{of_prompts}, at most {MAX_LOGPROBS} together; ask for less of "
                "one of them",
                param="logprobs",
                code="invalid_value",
            )
        return num + num_of_prompts
