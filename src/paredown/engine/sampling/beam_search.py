"""Beam search: keeps the most likely beginnings at each token and returns the best answers found.

Each step asks the engine, in one batch, for the best next tokens of every live beam. A beam is its
parent's tokens plus one: it is forked from the parent, shares its pages and computes only that
token. A finished answer's score is its log-probability over length ** length_penalty (Wu et al.,
arXiv 1609.08144, eq. 14, without their constant 5).
"""

import heapq
import math
from dataclasses import dataclass

from paredown.engine.engine import Engine
from paredown.engine.request import FinishReason, Request
from paredown.engine.sampling.field_rules import Flag, Integer, Number
from paredown.engine.sampling.sampling_params import MAX_LOGPROBS, SamplingParams
from paredown.errors import RequestError

MAX_BEAMS = MAX_LOGPROBS // 2


@dataclass(frozen=True, kw_only=True)
class BeamSearchParams:
    """`num_beams` beams are kept and as many answers returned. A `length_penalty` of 0 compares
    sums of log-probabilities and 1 their means; larger values favour longer answers. Raises
    ParameterError."""

    num_beams: int = 4
    max_tokens: int = 64
    length_penalty: float = 1.0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        beams = Integer(low=1, high=MAX_BEAMS, remedy=f"Use 1 to {MAX_BEAMS}.")
        beams.check("num_beams", self.num_beams)
        Integer(low=1, high=2**31, remedy="Use 1 or more.").check("max_tokens", self.max_tokens)
        penalty = Number(low=-10.0, high=10.0, remedy="Use a number from -10 to 10.")
        penalty.check("length_penalty", self.length_penalty)
        Flag().check("ignore_eos", self.ignore_eos)


@dataclass(frozen=True, kw_only=True)
class Beam:
    """An answer: `token_ids` with the end-of-text token if it has one, the sum of their
    log-probabilities, and the score that ranks it."""

    token_ids: tuple[int, ...]
    logprob: float
    score: float
    finish_reason: FinishReason


# Log-probability, tokens, and the request that computes the logits after them (for a live beam) or
# after all but the last (for a continuation).
_Path = tuple[float, tuple[int, ...], Request]


def beam_search(
    engine: Engine, prompt_token_ids: list[int], params: BeamSearchParams
) -> list[Beam]:
    """Returns the best answers, best first; ties go by token ids. The engine must be idle.

    At each token, the 2 * num_beams most likely continuations of all beams are considered. Those
    that end are finished; the best num_beams of the others live on. The search ends at `max_tokens`
    (or the context's end), or when no live beam can beat the num_beams best finished ones. Raises
    RequestError or CapacityError for a prompt that can never be served, and RequestError when the
    model fails.
    """
    num_best = 2 * params.num_beams
    one_token = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, logprobs=num_best)
    request = engine.submit(prompt_token_ids, one_token)
    request.keeps_pages = True
    room = engine.scheduler.max_tokens_per_request - request.num_prompt_tokens
    max_tokens = min(params.max_tokens, room)
    ending = frozenset() if params.ignore_eos else engine.tokenizer.eos_token_ids
    live: list[_Path] = [(0.0, (), request)]
    finished: list[Beam] = []
    try:
        for length in range(1, max_tokens + 1):
            following = _next_tokens(engine, live)
            best = heapq.nsmallest(num_best, following, key=lambda one: (-one[0], one[1]))
            going: list[_Path] = []
            for path in best:
                logprob, token_ids, _ = path
                is_end = token_ids[-1] in ending
                if is_end or length == max_tokens:
                    score = logprob / length**params.length_penalty
                    reason: FinishReason = "stop" if is_end else "length"
                    finished.append(
                        Beam(
                            token_ids=token_ids, logprob=logprob, score=score, finish_reason=reason
                        )
                    )
                elif len(going) < params.num_beams:
                    going.append(path)
            finished.sort(key=lambda one: (-one.score, one.token_ids))
            del finished[params.num_beams :]
            if not going or _is_decided(going[0][0], length, max_tokens, finished, params):
                break
            num_parents = len(live)
            for logprob, token_ids, parent in going:
                live.append((logprob, token_ids, engine.fork(parent, token_ids[-1])))
            _leave(engine, live[:num_parents])
            del live[:num_parents]
    finally:
        _leave(engine, live)
    return finished


def _next_tokens(engine: Engine, live: list[_Path]) -> list[_Path]:
    """Returns the beams with one more token each: those that may be among the best overall."""
    parents = {path[2].id: path for path in live}
    found: list[_Path] = []
    while parents:
        for output in engine.step():
            if output.finish_reason is None:
                continue
            logprob, token_ids, request = parents.pop(output.request.id)
            if output.error is not None:
                raise RequestError(
                    "beam search could not go on",
                    seen=output.error,
                    remedy="Use another checkpoint if the model failed, or settings that allow a "
                    "token.",
                )
            for one in output.logprobs[0].top:
                if one.logprob > -math.inf:
                    found.append((logprob + one.logprob, (*token_ids, one.token_id), request))
    return found


def _leave(engine: Engine, live: list[_Path]) -> None:
    """Removes these beams from the engine."""
    num_cancelled = 0
    for _, _, request in live:
        num_cancelled += engine.cancel(request.id)
        engine.scheduler.drop(request)
    if num_cancelled:
        engine.step()


def _is_decided(
    best_logprob: float,
    length: int,
    max_tokens: int,
    finished: list[Beam],
    params: BeamSearchParams,
) -> bool:
    """Returns whether the best live beam would lose even if all its further tokens had probability
    1."""
    if len(finished) < params.num_beams:
        return False
    kindest = max_tokens if params.length_penalty > 0 else length + 1
    return bool(best_logprob / kindest**params.length_penalty < finished[-1].score)
