"""Feedback by preference: the teacher says which of two answers is better."""

import re
from collections.abc import Sequence

from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.example import Example
from paredown.distill.black_box.input_file import Prompt
from paredown.distill.black_box.request import TeacherRequest, question
from paredown.distill.black_box.work import Work

_VERDICT = re.compile(r"^\W*(?:Answer\W+)?([AB])\W*$", re.MULTILINE)


def prefer(work: Work, prompts: Sequence[Prompt]) -> list[Example]:
    """Returns the prompts with the better of their first two answers, and the other one as
    rejected. Judges prefer a place (Zheng et al. 2023), so each pair is shown in both orders and
    left out where the order decides."""
    chosen = prompts[: work.num]
    requests = [_comparison(work, prompt, order) for prompt in chosen for order in ((0, 1), (1, 0))]
    verdicts = work.asker.ask(requests, _fault, worth=0.5)
    examples = []
    for prompt, one, other in zip(chosen, verdicts[::2], verdicts[1::2], strict=True):
        if one is None or other is None:
            continue
        best = _letter(one) == "B"
        if (_letter(other) == "A") != best:
            work.dropped["a pair judged by its order"] += 1
            continue
        examples.append(
            Example(
                messages=prompt.messages,
                completion=prompt.answers[best],
                rejected=prompt.answers[not best],
            )
        )
    return examples


def _comparison(work: Work, prompt: Prompt, order: tuple[int, int]) -> TeacherRequest:
    first, second = (prompt.answers[at] for at in order)
    return work.how.request(
        question(
            f"Which of two answers to a task is better: more correct, more helpful, better "
            f"written?\n\n# Task\n{conversation_text(prompt)}\n\n# Answer A\n{first}\n\n"
            f"# Answer B\n{second}\n\nReply with one letter, A or B, and nothing else."
        ),
        temperature=0.0,
    )


def conversation_text(prompt: Prompt) -> str:
    """Returns the user's words, after all that was said before them."""
    if len(prompt.messages) == 1:
        return prompt.text
    return "\n\n".join(f"[{one['role']}] {one['content']}" for one in prompt.messages)


def _letter(answer: Answer) -> str | None:
    found = _VERDICT.findall(answer.text)
    return str(found[-1]) if found else None


def _fault(answer: Answer) -> str | None:
    return answer.fault() or (None if _letter(answer) else "no verdict")
