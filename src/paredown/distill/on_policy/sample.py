"""Draws answers from a student, or from a mixture of it and its teacher.

    p~ = a p + (1 - a) q          (MiniLLM, arXiv 2306.08543, section 2.2)

q is the student's distribution of the next token, p the teacher's, and a the teacher's share. All
rows of a step are drawn side by side, and rows that have ended are left out after a while.

Shapes: B rows, R rows that still run, T tokens, V vocabulary.
"""

import math

import torch
from torch import Tensor

from paredown.distill.arithmetic import computing
from paredown.distill.inverse_transform import drawn
from paredown.distill.on_policy.cached_decoder import CachedDecoder
from paredown.distill.on_policy.samples import Samples
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.teacher import DecoderTeacher
from paredown.models.decoder.decoder import Decoder

# Rows that have ended are left out once they are this share of those that run.
_ENDED_SHARE = 0.5


def sample(
    student: Decoder,
    sampling: Sampling,
    step: int,
    teacher: DecoderTeacher | None = None,
    teacher_share: float = 0.0,
) -> Samples:
    """Returns the answers of a step. They depend on its number and the weights alone. With a
    teacher its probability of each drawn token is returned, too. Raises ConfigError for texts that
    are longer than a model reads."""
    assert teacher is not None or teacher_share == 0
    for decoder in (student, *([] if teacher is None else [teacher.decoder])):
        sampling.check(decoder.spec)
    with torch.no_grad(), computing(sampling.arithmetic, student.device.type):
        drawing = _Drawing(student, sampling, step, teacher)
        for number in range(sampling.max_new_tokens):
            drawing.draw(number, teacher_share)
            if not drawing.goes_on(sampling.stop_ids):
                break
            if number + 1 < sampling.max_new_tokens:
                drawing.advance()
    return drawing.samples()


class _Drawing:
    """The texts of a step while they grow. `_running_R` has the indices of the rows that the models
    still run, and `_is_open_R` those of them that have not ended."""

    def __init__(
        self, student: Decoder, sampling: Sampling, step: int, teacher: DecoderTeacher | None
    ) -> None:
        prompts = sampling.step_prompts(step)
        self._lengths_B = torch.tensor([len(ids) for ids in prompts])
        self._prompt_lengths_B = self._lengths_B.clone()
        longest = int(self._lengths_B.max())
        num_places = longest + sampling.max_new_tokens
        self._tokens_BT = torch.zeros(len(prompts), num_places, dtype=torch.int64)
        for row, ids in enumerate(prompts):
            self._tokens_BT[row, : len(ids)] = torch.tensor(ids)
        self._log_q_BT = torch.zeros(self._tokens_BT.shape)
        self._log_p_BT = torch.zeros(self._tokens_BT.shape)
        self._running_R = torch.arange(len(prompts))
        self._is_open_R = torch.ones(len(prompts), dtype=torch.bool)
        self._draws_BN = torch.from_numpy(sampling.draws(step)).to(student.device)
        self._temperature = sampling.temperature
        self._vocab_size = student.spec.vocab_size
        self._student = CachedDecoder(student, num_places)
        self._teacher = None if teacher is None else CachedDecoder(teacher.decoder, num_places)
        prompts_BT = self._tokens_BT[:, :longest], self._lengths_B
        self._log_q_RV = self._log_probabilities(self._student.read(*prompts_BT))
        if self._teacher is not None:
            self._log_p_RV = self._log_probabilities(self._teacher.read(*prompts_BT))

    def _log_probabilities(self, logits_RV: Tensor) -> Tensor:
        """A teacher may have padding after the student's vocabulary."""
        return (logits_RV[:, : self._vocab_size] / self._temperature).log_softmax(-1)

    def draw(self, number: int, teacher_share: float) -> None:
        """Draws token `number` of each answer that has not ended."""
        log_RV = self._log_q_RV
        if teacher_share > 0:
            log_RV = self._log_p_RV
            if teacher_share < 1:
                log_RV = torch.logaddexp(
                    self._log_q_RV + math.log1p(-teacher_share),
                    self._log_p_RV + math.log(teacher_share),
                )
        self._drawn_R = drawn(log_RV, self._draws_BN[self._running_R, number, None])[:, 0]
        rows, tokens = self._running_R[self._is_open_R], self._drawn_R[self._is_open_R]
        places = self._lengths_B[rows]
        self._tokens_BT[rows, places] = tokens
        self._log_q_BT[rows, places] = self._log_q_RV[self._is_open_R, tokens]
        if self._teacher is not None:
            self._log_p_BT[rows, places] = self._log_p_RV[self._is_open_R, tokens]
        self._lengths_B[rows] += 1

    def goes_on(self, stop_ids: frozenset[int]) -> bool:
        """Ends the answers whose last token says so, and returns whether any goes on."""
        if stop_ids:
            ends_R = torch.isin(self._drawn_R, torch.tensor(sorted(stop_ids)))
            self._is_open_R = self._is_open_R & ~ends_R
        return bool(self._is_open_R.any())

    def advance(self) -> None:
        """Runs the models over the drawn tokens."""
        num_ended = int((~self._is_open_R).sum())
        if num_ended >= _ENDED_SHARE * len(self._is_open_R):
            kept_R = self._is_open_R.nonzero()[:, 0]
            self._student.keep(kept_R)
            if self._teacher is not None:
                self._teacher.keep(kept_R)
            self._running_R, self._drawn_R = self._running_R[kept_R], self._drawn_R[kept_R]
            self._is_open_R = self._is_open_R[kept_R]
        self._log_q_RV = self._log_probabilities(self._student.add(self._drawn_R))
        if self._teacher is not None:
            self._log_p_RV = self._log_probabilities(self._teacher.add(self._drawn_R))

    def samples(self) -> Samples:
        longest = int(self._lengths_B.max())
        return Samples(
            tokens_BT=self._tokens_BT[:, :longest],
            prompt_lengths_B=self._prompt_lengths_B,
            lengths_B=self._lengths_B,
            log_q_BT=self._log_q_BT[:, :longest],
            log_p_BT=None if self._teacher is None else self._log_p_BT[:, :longest],
        )
