"""Lists as teachers write them, and tasks that are kept."""

import pytest

from paredown.distill.black_box.answer import Answer
from paredown.distill.black_box.task_list import (
    list_fault,
    more_tasks_wording,
    parse_list,
    task_fault,
)


def said(text: str, reason: str = "stop") -> Answer:
    return Answer(text=text, finish_reason=reason, num_tokens=None)


@pytest.mark.parametrize(
    "text",
    [
        "1. Name a river.\n2. Why is it so?\nExplain.\n3. Sing.",
        "Sure! Here they are:\n\n1) Name a river.\n\n2) Why is it so?\nExplain.\n\n3) Sing.\n",
        "**1.** Name a river.\n**2.** Why is it so?\nExplain.\n**3.** Sing.",
        "1. **Name a river.**\n2. **Why is it so?\nExplain.**\n3. **Sing.**",
        "Task 1: Name a river.\nTask 2: Why is it so?\nExplain.\nTask 3: Sing.",
        "- Name a river.\n- Why is it so?\nExplain.\n- Sing.",
        "• Name a river.\n• Why is it so?\nExplain.\n• Sing.",
    ],
)
def test_items_of_lists_of_all_kinds(text: str) -> None:
    assert parse_list(said(text)) == ["Name a river.", "Why is it so?\nExplain.", "Sing."]


def test_the_item_that_was_cut_off_is_left_out() -> None:
    assert parse_list(said("1. One thing.\n2. Ano", "length")) == ["One thing."]
    assert list_fault(said("1. One thi", "length")) == "no list"
    assert list_fault(said("In 1990. It rained.")) == "no list"
    assert list_fault(said("")) == "empty"
    assert list_fault(said("1. One thing.")) is None


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        ("Name three rivers of Asia.", None),
        ("¿Cuál es la capital de Perú?", None),
        ("列出三条亚洲的河流", None),
        ("Why? Why?", "a task too short"),
        ("word " * 151, "a task too long"),
        ("Describe the image in words.", "a task that is not done in writing"),
        ("Read the attached letter and answer it.", "a task that is not done in writing"),
        ("Write about imagery in poems.", None),
        ("(continued) name some more rivers.", "a task without a beginning"),
    ],
)
def test_tasks_that_are_kept(task: str, fault: str | None) -> None:
    assert task_fault(task) == fault


def test_examples_are_shown_on_one_line_each() -> None:
    shown = more_tasks_wording(["Add\n\n2 and 3.", "Sing."])
    assert "1. Add 2 and 3.\n2. Sing.\n" in shown
