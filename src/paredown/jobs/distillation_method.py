"""Chooses how a student learns where nobody says it (`--method auto`).

A reward is what its user wants, so it goes first. Text that the teacher has sampled is made as long
as the budget, so all of it is seen once: its tokens have the teacher's distribution, and no teacher
has to run beside the student. Text of other origin says nothing about the teacher, which is asked
about it then.
"""

from dataclasses import replace

from paredown.distill.distill import DistillConfig, Pair
from paredown.distill.methods import AUTO
from paredown.distill.same_vocabulary import check_same_vocabulary
from paredown.errors import UnsupportedError
from paredown.evaluate.texts.calibration_text import text_parts
from paredown.models.text.tokenizer import Tokenizer


def choose_method(pair: Pair, config: DistillConfig) -> tuple[DistillConfig, tuple[str, ...]]:
    """Returns the config with a method in place of auto, and why it was chosen, in words."""
    if config.method != AUTO:
        return config, ()
    method, why = _chosen(pair, config)
    return replace(config, method=method), (f"auto chose {method}: {why}",)


def _chosen(pair: Pair, config: DistillConfig) -> tuple[str, str]:
    if not pair.student.spec.generates:
        return "soft-label", "an encoder learns what its teacher makes of each text"
    if config.options.reward:
        return "reward", "a reward was given"
    try:
        check_same_vocabulary(pair.student, pair.teacher)
    except UnsupportedError as error:
        return "hard-label", f"the teacher's distribution is of no use ({error.what})"
    if config.data.paths or text_parts(None, Tokenizer.open(pair.teacher.path)):
        return "slim", "the text is not the teacher's own, so the teacher is asked about it"
    return "hard-label", "the teacher samples all of the text, whose tokens are then its labels"
