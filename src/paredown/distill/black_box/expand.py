"""Expansion: more tasks from a few (Self-Instruct, Wang et al. 2022, arXiv 2212.10560)."""

import random
from collections.abc import Sequence

from paredown.distill.black_box.example import Example
from paredown.distill.black_box.input_file import Prompt
from paredown.distill.black_box.label import label
from paredown.distill.black_box.rouge_l import NovelTasks
from paredown.distill.black_box.task_list import more_tasks_wording
from paredown.distill.black_box.task_writer import TaskWriter
from paredown.distill.black_box.work import Work

# The paper shows six tasks of people and two that the model wrote.
_NUM_EXAMPLES = 8
_NUM_OWN = 2


def expand(work: Work, seeds: Sequence[Prompt]) -> list[Example]:
    """Returns the seeds and new tasks, `work.num` in all, each answered by the teacher."""
    assert work.num is not None
    novel = NovelTasks(work.likeness)
    for seed in seeds:
        novel.add(seed.text)
    num_seeds = len(novel.texts)

    def wording(number: int) -> str:
        draw = random.Random(f"{work.seed}/{number}")
        own = novel.texts[num_seeds:]
        chosen = draw.sample(own, min(_NUM_OWN, len(own)))
        chosen += draw.sample(novel.texts[:num_seeds], min(_NUM_EXAMPLES - len(chosen), num_seeds))
        draw.shuffle(chosen)
        return more_tasks_wording(chosen)

    examples = label(work, seeds)
    TaskWriter(work, novel).grow(examples, work.num, wording)
    return examples
