"""Labeling: the teacher answers prompts (Kim and Rush 2016, on the level of sequences)."""

from collections.abc import Sequence

from paredown.distill.black_box.example import Example
from paredown.distill.black_box.input_file import Prompt
from paredown.distill.black_box.work import Work


def label(work: Work, prompts: Sequence[Prompt]) -> list[Example]:
    """Returns the prompts that have a useful answer, in their order."""
    chosen = prompts[: work.num]
    answers = work.asker.ask([work.how.request(one.messages) for one in chosen], work.how.fault)
    return [
        Example(messages=prompt.messages, completion=answer.text.strip())
        for prompt, answer in zip(chosen, answers, strict=True)
        if answer is not None
    ]
