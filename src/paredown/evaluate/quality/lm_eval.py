"""lm-evaluation-harness on our executor: `python -m paredown.evaluate.quality.lm_eval` is its
command line with one model more, `--model paredown --model_args model=FOLDER`
(docs/guide/python.md).

The harness finds other models only if they register themselves in the same process. From Python,
`import paredown.evaluate.quality.lm_eval` does that.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from paredown.engine.llm import LLM
from paredown.engine.sampling.sampling_params import SamplingParams
from paredown.engine.score import encode_text
from paredown.errors import RequestError, UnsupportedError
from paredown.shown import quoted
from paredown.spec.kv_choice import KVChoice

try:
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
    from tqdm import tqdm
except ModuleNotFoundError as error:
    missing = UnsupportedError(
        "lm-evaluation-harness is not installed",
        seen=f"no module {error.name}",
        remedy="Install it with `pip install 'paredown[eval]'`.",
    )
    if __name__ == "__main__":
        print(f"paredown: {missing}", file=sys.stderr)
        sys.exit(2)
    raise missing from error

LOGGER = logging.getLogger(__name__)
Job = TypeVar("Job")
Answer = TypeVar("Answer")
# Many more than run at once, so that batches are usually full.
NUM_AT_ONCE = 1024
# The default of the harness's --device.
HARNESS_DEVICE = "cuda:0"
# The harness's generation settings with the same names as ours.
SAMPLING_NAMES = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)


class ParedownLM(LM):  # type: ignore[misc]
    """`model` is what `LLM` takes; None is the built-in one. `max_gen_toks` is the number of
    generated tokens where a task sets none. Sampled answer i has seed + i.

    The harness's `batch_size` and `max_batch_size` have no effect, since the engine forms its own
    batches. Raises UnsupportedError for a device other than the CPU or the harness's default.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        num_threads: int | None = None,
        num_pages: int | None = None,
        kv_dtype: KVChoice | None = None,
        max_gen_toks: int = 256,
        seed: int = 1234,
        **given: object,
    ) -> None:
        super().__init__()
        _check_given(given)
        self._llm = LLM(model, num_threads=num_threads, num_pages=num_pages, kv_dtype=kv_dtype)
        self._name = str(model)
        self._max_gen_toks = max_gen_toks
        self._seed = seed
        for note in self._llm.notes:
            LOGGER.warning("%s", note)

    def loglikelihood(
        self, requests: list[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Returns (log-probability, whether it is the greedy answer) for each continuation."""
        num_dropped: list[int] = []

        def score(pairs: list[Any]) -> list[tuple[float, bool]]:
            scores = self._llm.score(pairs)
            num_dropped.extend(one.num_dropped_tokens for one in scores)
            return [(one.logprob, one.is_greedy) for one in scores]

        pairs = [request.args for request in requests]
        answers = self._answers("loglikelihood", requests, pairs, score, quiet=disable_tqdm)
        if any(num_dropped):
            LOGGER.warning(
                "%d of %d contexts lost tokens at their start for want of room, up to %d",
                sum(map(bool, num_dropped)),
                len(num_dropped),
                max(num_dropped),
            )
        return answers

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Returns the log-probability of each whole text."""

        def score(texts: list[str]) -> list[float]:
            return [one.logprob for one in self._llm.score_rolling(texts)]

        texts = [request.args[0] for request in requests]
        return self._answers("loglikelihood_rolling", requests, texts, score, quiet=disable_tqdm)

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Returns a continuation of each context. Raises RequestError for settings that we do not
        support."""
        jobs = []
        for i, request in enumerate(requests):
            context, settings = request.args
            params = self._params(settings, self._seed + i)
            jobs.append((self._prompt(context, params), params))
        return self._answers("generate_until", requests, jobs, self._texts, quiet=disable_tqdm)

    def _texts(self, jobs: list[tuple[list[int], SamplingParams]]) -> list[str]:
        prompts, params = zip(*jobs, strict=True)
        completions = self._llm.generate(prompts, params)
        for completion in completions:
            if completion.error is not None:
                raise RequestError(
                    "an answer could not be computed",
                    seen=completion.error,
                    remedy="Use another checkpoint if the model failed, or settings that allow a "
                    "token.",
                )
        return [completion.text for completion in completions]

    def _answers(
        self,
        kind: str,
        requests: list[Any],
        jobs: list[Job],
        compute: Callable[[list[Job]], list[Answer]],
        *,
        quiet: bool,
    ) -> list[Answer]:
        """Computes the answers in portions, so that progress is visible and --use_cache saves
        partial results."""
        answers: list[Answer] = []
        with tqdm(total=len(jobs), desc=f"Running {kind} requests", disable=quiet) as bar:
            for start in range(0, len(jobs), NUM_AT_ONCE):
                found = compute(jobs[start : start + NUM_AT_ONCE])
                for request, answer in zip(requests[start:], found, strict=False):
                    self.cache_hook.add_partial(kind, request.args, answer)
                answers += found
                bar.update(len(found))
        return answers

    @property
    def tokenizer_name(self) -> str:
        return self._name.replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, object]], add_generation_prompt: bool = True
    ) -> str:
        """Renders a conversation. Raises UnsupportedError if its last turn is to be continued."""
        if not add_generation_prompt:
            raise UnsupportedError(
                "a chat template that ends inside a turn",
                seen="a task with a gen_prefix",
                remedy="Run it without --apply_chat_template.",
            )
        return self._llm.tokenizer.render_chat(chat_history)

    def _params(self, settings: dict[str, Any], seed: int) -> SamplingParams:
        given = dict(normalize_gen_kwargs(settings, self._max_gen_toks))
        stop = handle_stop_sequences(given.pop("until"), eos=None)
        max_tokens = given.pop("max_gen_toks")
        is_sampled = given.pop("do_sample")
        ours = {name: given.pop(name) for name in SAMPLING_NAMES if name in given}
        if given:
            raise RequestError(
                "a task asks for settings of generation that we do not have",
                seen=", ".join(f"{name}={quoted(value)}" for name, value in given.items()),
                remedy="Take them out of the task's generation_kwargs.",
            )
        if not is_sampled:
            ours["temperature"] = 0.0
        # The harness uses an empty stop string for none.
        return SamplingParams(
            **ours,
            max_tokens=max_tokens,
            stop=tuple(one for one in stop if one),
            seed=seed,
        )

    def _prompt(self, context: str, params: SamplingParams) -> list[int]:
        """Returns the end of the context, cut to leave room for the answer."""
        size = self._llm.engine.scheduler.max_tokens_per_request
        room = size - (params.max_tokens or 0)
        if room < 1:
            raise RequestError(
                "a task's answers do not fit into the context",
                seen=f"{params.max_tokens} tokens to generate, a context of {size}",
                remedy="Give fewer: --gen_kwargs max_gen_toks=N.",
            )
        token_ids = encode_text(self._llm.tokenizer, context)
        if len(token_ids) > room:
            LOGGER.warning("a context of %d tokens lost all but its last %d", len(token_ids), room)
        return token_ids[-room:]


def _check_given(given: dict[str, object]) -> None:
    """Raises for arguments other than those that the harness passes to every model."""
    device = given.pop("device", None)
    if device == HARNESS_DEVICE:
        LOGGER.warning("device %s is the harness's default; this model runs on the CPU", device)
    elif device not in (None, "cpu"):
        raise UnsupportedError(
            "there is no such device here", seen=device, remedy="Leave --device out, or give cpu."
        )
    batch_size = given.pop("batch_size", None)
    if batch_size not in (None, 1, "1", "auto"):
        LOGGER.warning("batch_size=%s changes nothing: the engine batches by itself", batch_size)
    given.pop("max_batch_size", None)
    if given:
        raise UnsupportedError(
            "there is no such model argument",
            seen=", ".join(given),
            remedy="Use model, num_threads, num_pages, kv_dtype, max_gen_toks, seed.",
        )


register_model("paredown")(ParedownLM)

if __name__ == "__main__":
    cli_evaluate()
