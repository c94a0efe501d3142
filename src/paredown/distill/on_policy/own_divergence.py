"""Measures a student on the texts that it writes itself."""

import torch

from paredown.distill.losses.reverse_kl import ReverseKL
from paredown.distill.objective import LogitObjective
from paredown.distill.on_policy.sampling import Sampling
from paredown.distill.on_policy.student_batches import StudentBatches
from paredown.distill.teacher import DecoderTeacher
from paredown.models.decoder.decoder import Decoder


def own_divergence(
    student: Decoder, teacher: DecoderTeacher, sampling: Sampling, num_steps: int
) -> float:
    """Returns the mean reverse KL divergence to the teacher at a token of the student's own texts.

    Summed over the tokens of an answer its expectation is the divergence of whole answers. A
    measure needs another seed than a training, or the same draws are seen again.
    """
    source = StudentBatches(sampling=sampling)
    objective = LogitObjective(loss=ReverseKL(), teacher=teacher)
    total, num_targets = 0.0, 0
    with torch.no_grad():
        for step in range(num_steps):
            batch = source.batch(step, student)
            loss = objective.total(student, batch, sampling.arithmetic, recomputes=False)
            total += loss.item()
            num_targets += batch.num_targets
    return total / num_targets
