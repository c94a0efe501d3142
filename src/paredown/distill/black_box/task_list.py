"""Lists of tasks: the words by which a teacher is asked for one, and what it wrote."""

import re
from collections.abc import Sequence

from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.rouge_l import words

NO_LIST = "no list"
TASKS_A_REQUEST = 8
_FORM = (
    "Write them as a numbered list and nothing else. Each task stands alone, brings all that is "
    "needed to do it, and can be done in writing."
)
_NUMBERED = re.compile(r"^[ \t]*(?:\*\*)?(?:Task[ \t]*)?\d{1,3}[ \t]*[.):](?:\*\*)?[ \t]+", re.M)
_BULLET = re.compile(r"^[ \t]*[-*•][ \t]+", re.M)
_LEAST_WORDS, _MOST_WORDS = 4, 150
# Self-Instruct leaves out what a model of text cannot do.
_NOT_IN_WRITING = re.compile(
    r"\b(?:images?|graphs?|pictures?|photos?|files?|maps?|draw|plot|videos?|audio|attached)\b",
    re.IGNORECASE,
)


def more_tasks_wording(examples: Sequence[str]) -> str:
    """Asks for other tasks than the examples, as Self-Instruct does (Wang et al. 2022, table 5)."""
    listed = "\n".join(f"{at}. {' '.join(one.split())}" for at, one in enumerate(examples, 1))
    return (
        f"Here are {len(examples)} tasks:\n\n{listed}\n\nCome up with {TASKS_A_REQUEST} more "
        f"tasks. They are about other things, and of many kinds. {_FORM}"
    )


def topic_wording(topic: str, entity: str) -> str:
    """Asks for tasks about an entity of a topic."""
    return (
        f"Come up with {TASKS_A_REQUEST} tasks or questions about {entity}, in the field of "
        f"{topic}. They are of many kinds: some are easy, some need an expert. {_FORM}"
    )


def entities_wording(topic: str, count: int) -> str:
    """Asks for the names of what a topic is about."""
    return (
        f"Name {count} things, persons, places or ideas that matter most in the field of {topic}. "
        "Write them as a numbered list of names and nothing else."
    )


def alike_wording(task: str) -> str:
    """Asks for tasks that take the same skill as a task."""
    return (
        f"Somebody failed at this task:\n\n{task}\n\nCome up with {TASKS_A_REQUEST} other tasks "
        f"that take the same skill, some easier and some harder. {_FORM}"
    )


def parse_list(answer: Answer) -> list[str]:
    """Returns the items of a numbered list, else of one with bullets. An item that was cut off is
    left out."""
    for mark in (_NUMBERED, _BULLET):
        items = [one.strip().strip("*").strip() for one in mark.split(answer.text)[1:]]
        if items:
            return [one for one in (items[:-1] if answer.was_cut else items) if one]
    return []


def list_fault(answer: Answer) -> str | None:
    """Returns why an answer has no item."""
    return answer.fault() or (None if parse_list(answer) else NO_LIST)


def task_fault(task: str) -> str | None:
    """Returns why a task is not kept; None where it is."""
    num_words = len(words(task))
    if num_words < _LEAST_WORDS:
        return "a task too short"
    if num_words > _MOST_WORDS:
        return "a task too long"
    if _NOT_IN_WRITING.search(task):
        return "a task that is not done in writing"
    return None if task[0].isalnum() or task[0] in "\"'“‘¿¡" else "a task without a beginning"
