"""Feedback by correction: the teacher marks a student's answers, and writes better ones."""

import re
from collections.abc import Sequence

from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.example import Example
from paredown.distill.black_box.input_file import Prompt
from paredown.distill.black_box.prefer import conversation_text
from paredown.distill.black_box.request import TeacherRequest, question
from paredown.distill.black_box.rouge_l import NovelTasks
from paredown.distill.black_box.task_list import alike_wording
from paredown.distill.black_box.task_writer import TaskWriter
from paredown.distill.black_box.work import Work

_MARK = re.compile(r"\W*(CORRECT|WRONG)\b[\s.:*#-]*")


def correct(work: Work, prompts: Sequence[Prompt]) -> list[Example]:
    """Returns each prompt with the student's answer where the teacher finds it correct; elsewhere
    with the teacher's, and the student's as rejected."""
    return _marked(work, prompts[: work.num])


def harder(work: Work, prompts: Sequence[Prompt]) -> list[Example]:
    """Returns what `correct` does, and then new tasks like those that the student got wrong, with
    the teacher's answers: `work.num` examples in all."""
    assert work.num is not None
    examples = correct(work, prompts)
    failed = [one.prompt for one in examples if one.rejected is not None]
    if not failed:
        work.notes.append("no answer is wrong, so there are no hard examples to expand")
        return examples
    novel = NovelTasks(work.likeness)
    for prompt in prompts:
        novel.add(prompt.text)
    writer = TaskWriter(work, novel)
    writer.grow(examples, work.num, lambda number: alike_wording(failed[number % len(failed)]))
    return examples


def _marked(work: Work, prompts: Sequence[Prompt]) -> list[Example]:
    def fault(answer: Answer) -> str | None:
        reason = work.how.fault(answer)
        if reason is not None:
            return reason
        mark = _MARK.match(answer.text)
        if mark is None:
            return "no verdict"
        has_answer = bool(answer.text[mark.end() :].strip())
        return "a verdict without an answer" if mark[1] == "WRONG" and not has_answer else None

    examples = []
    answers = work.asker.ask([_marking(work, prompt) for prompt in prompts], fault)
    for prompt, answer in zip(prompts, answers, strict=True):
        mark = None if answer is None else _MARK.match(answer.text)
        if answer is None or mark is None:
            continue
        given = prompt.answers[0]
        if mark[1] == "CORRECT":
            examples.append(Example(messages=prompt.messages, completion=given))
            continue
        better = answer.text[mark.end() :].strip()
        examples.append(Example(messages=prompt.messages, completion=better, rejected=given))
    return examples


def _marking(work: Work, prompt: Prompt) -> TeacherRequest:
    return work.how.request(
        question(
            f"Mark an answer to a task.\n\n# Task\n{conversation_text(prompt)}\n\n# Answer\n"
            f"{prompt.answers[0]}\n\nIf the answer is correct and complete, reply with the word "
            "CORRECT and nothing else. Otherwise reply with the word WRONG in the first line, and "
            "below it the answer as it should be, without a comment."
        ),
        temperature=0.0,
    )
