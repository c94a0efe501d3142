"""TaskWriter: lets a teacher write tasks that are unlike each other, and answer them."""

import math
from collections.abc import Callable
from dataclasses import replace

from paredown.distill.black_box.example import Example
from paredown.distill.black_box.input_file import Prompt
from paredown.distill.black_box.label import label
from paredown.distill.black_box.request import question
from paredown.distill.black_box.rouge_l import NovelTasks
from paredown.distill.black_box.task_list import (
    TASKS_A_REQUEST,
    list_fault,
    parse_list,
    task_fault,
)
from paredown.distill.black_box.work import Work
from paredown.units import format_count

# Requests that see the same tasks. What is asked does not depend on how many run at once, so a run
# that goes on asks for the same.
_ROUND = 8
# Of a list, about so much is new.
_NEW_SHARE = 0.5
# So many in a row are no accident: lists without a new task, and tasks without an answer.
_MAX_BARREN = 4 * _ROUND
_MAX_UNANSWERED = 4 * _ROUND


class TaskWriter:
    """`novel` has all tasks so far; a new one is kept if it is unlike them."""

    def __init__(self, work: Work, novel: NovelTasks) -> None:
        self._work = work
        self._novel = novel
        self._backlog: list[str] = []
        self._number = 0
        self._num_barren = 0

    def grow(self, examples: list[Example], num: int, wording: Callable[[int], str]) -> None:
        """Adds answered tasks until there are `num` examples. `wording` gives the words of the
        request with that number."""
        num_unanswered = 0
        while len(examples) < num and not self._work.asker.is_over:
            missing = num - len(examples)
            if not self._backlog:
                if self._num_barren >= _MAX_BARREN:
                    counted = format_count(self._num_barren, "list")
                    self._work.notes.append(f"{counted} in a row brought no new task")
                    return
                self._write(missing, wording)
            tasks, self._backlog = self._backlog[:missing], self._backlog[missing:]
            prompts = [Prompt(messages=question(task)) for task in tasks]
            new = label(replace(self._work, num=None), prompts)
            num_unanswered = 0 if new else num_unanswered + len(tasks)
            if num_unanswered >= _MAX_UNANSWERED and not self._work.asker.is_over:
                counted = format_count(num_unanswered, "new task")
                self._work.notes.append(f"{counted} in a row got no answer that is kept")
                return
            examples += new

    def _write(self, missing: int, wording: Callable[[int], str]) -> None:
        """Asks for about as many tasks as are missing; for a full round of lists, after one that
        brought nothing new."""
        count = math.ceil(missing / (_NEW_SHARE * TASKS_A_REQUEST))
        count = _ROUND if self._num_barren else min(_ROUND, count)
        numbers = range(self._number, self._number + count)
        self._number += count
        requests = [
            self._work.how.request(question(wording(number)), seed=self._work.seed + number)
            for number in numbers
        ]
        for answer in self._work.asker.ask(requests, list_fault, worth=0.0):
            if answer is not None:
                are_new = [self._keep(task) for task in parse_list(answer)]
                self._num_barren = 0 if any(are_new) else self._num_barren + 1

    def _keep(self, task: str) -> bool:
        """Returns whether the task is new and can be answered; then it is to be."""
        fault = task_fault(task)
        if fault is None and not self._novel.add(task):
            fault = "a task like another"
        if fault is None:
            self._backlog.append(task)
        else:
            self._work.dropped[fault] += 1
        return fault is None
