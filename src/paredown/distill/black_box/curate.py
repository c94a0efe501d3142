"""Curation: tasks about topics, and about the entities of each."""

from collections.abc import Sequence
from itertools import zip_longest

from paredown.distill.black_box.example import Example
from paredown.distill.black_box.input_file import Topic
from paredown.distill.black_box.request import question
from paredown.distill.black_box.rouge_l import NovelTasks
from paredown.distill.black_box.task_list import (
    entities_wording,
    list_fault,
    parse_list,
    topic_wording,
)
from paredown.distill.black_box.task_writer import TaskWriter
from paredown.distill.black_box.work import Work

_ENTITIES_A_TOPIC = 8
_MOST_ENTITY_CHARS = 100


def curate(work: Work, topics: Sequence[Topic]) -> list[Example]:
    """Returns answered tasks about each topic in turn, `work.num` in all. The teacher names the
    entities of topics that have none."""
    assert work.num is not None
    pairs = _pairs(work, topics)
    examples: list[Example] = []
    if pairs:
        writer = TaskWriter(work, NovelTasks(work.likeness))
        writer.grow(examples, work.num, lambda at: topic_wording(*pairs[at % len(pairs)]))
    return examples


def _pairs(work: Work, topics: Sequence[Topic]) -> list[tuple[str, str]]:
    """Returns topics with their entities: the first of each topic, then the second of each."""
    bare = [topic.name for topic in topics if not topic.entities]
    requests = [
        work.how.request(question(entities_wording(name, _ENTITIES_A_TOPIC))) for name in bare
    ]
    answers = work.asker.ask(requests, list_fault, worth=0.0)
    named = {
        name: tuple(one for one in parse_list(answer) if len(one) <= _MOST_ENTITY_CHARS)
        for name, answer in zip(bare, answers, strict=True)
        if answer is not None
    }
    lists = [
        [(topic.name, entity) for entity in topic.entities or named.get(topic.name, ())]
        for topic in topics
    ]
    return [pair for row in zip_longest(*lists) for pair in row if pair is not None]
