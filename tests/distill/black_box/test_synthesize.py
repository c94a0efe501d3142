"""All operations, end to end beside a teacher on loopback: what is written, counted and kept."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.teacher_server import FakeTeacher, Fault, running_teacher
from paredown.distill.black_box.asker import AskLimits
from paredown.distill.black_box.rouge_l import rouge_l, words
from paredown.distill.black_box.synthesize import SynthesisConfig, SynthesisResult, synthesize
from paredown.distill.black_box.teacher import TeacherConfig
from paredown.distill.data.record import Conversation, PromptCompletion, UnusableError
from paredown.distill.data.training_file import read_records
from paredown.errors import ConfigError, OutputError, TeacherError

NOUNS = ["river", "poet", "planet", "bridge", "tree", "song", "king", "bread", "cloud", "ship"]
VERBS = ["Name", "Describe", "Compare", "Praise", "Draft", "Count", "Explain", "Sell"]


class Scholar:
    """Writes a numbered list of new tasks where it is asked for one, and marks answers."""

    def __init__(self) -> None:
        self.num_lists = 0

    def __call__(self, prompt: str) -> str:
        if prompt.startswith("Name ") and "matter most" in prompt:
            return "1. Rome\n2. Milan\n3. Rome"
        if "Come up with" in prompt:
            self.num_lists += 1
            start = self.num_lists * 5
            tasks = [
                f"{VERBS[at % 8]} {NOUNS[at % 10]} {at} {at * 7} {at * 11} please"
                for at in range(start, start + 8)
            ]
            return "\n".join(f"{at}. {task}" for at, task in enumerate(tasks, 1))
        if prompt.startswith("Mark an answer"):
            return "CORRECT" if "four" in prompt else "WRONG\nIt is four."
        if prompt.startswith("Which of two"):
            return self.verdict(prompt)
        return f"Let me see: {prompt}"

    def verdict(self, prompt: str) -> str:
        first, second = re.findall(r"# Answer [AB]\n(\w+)", prompt)
        return "Answer: A" if "tie" in (first, second) or first == "good" else "B."


@pytest.fixture
def teacher() -> Iterator[FakeTeacher]:
    with running_teacher(reply=Scholar()) as teacher:
        yield teacher


def make(
    teacher: FakeTeacher, folder: Path, lines: list[object], **options: object
) -> SynthesisResult:
    path = folder / "in.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in lines))
    limits = AskLimits(first_wait_s=0.005, **options.pop("limits", {}))
    place = TeacherConfig(address=teacher.url, model="big", timeout_s=10)
    fields = {"ask": "label", "limits": limits, **options}
    config = SynthesisConfig(input=path, teacher=place, **fields)
    return synthesize(config, folder / "out.jsonl")


def written(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


PROMPTS = [{"prompt": f"What is {noun}?"} for noun in NOUNS]


def test_label_writes_what_distill_reads(teacher: FakeTeacher, tmp_path: Path) -> None:
    made = make(teacher, tmp_path, [*PROMPTS, PROMPTS[0], {}])
    records = list(read_records(tmp_path / "out.jsonl"))
    assert len(records) == made.num_examples == made.num_requests == 10
    assert all(isinstance(one, Conversation) for one in records)
    assert records[3].messages[1]["content"] == "Let me see: What is bridge?"
    assert made.dropped == {"came before": 1, "no prompt, no messages, no instruction": 1}
    assert (made.useful, made.failures, made.notes) == (1.0, {}, ())
    assert made.num_tokens == teacher.num_tokens
    assert made.prompts.distinct_1 == pytest.approx(12 / 30)
    assert made.answers.self_bleu > made.prompts.distinct_2 > 0
    assert json.loads(json.dumps(made.as_json()))["answers"]["self_bleu"] == made.answers.self_bleu


def test_the_form_of_plain_models(teacher: FakeTeacher, tmp_path: Path) -> None:
    make(teacher, tmp_path, PROMPTS, as_messages=False, num=4)
    records = list(read_records(tmp_path / "out.jsonl"))
    expected = PromptCompletion(prompt="What is river?", completion="Let me see: What is river?")
    assert (len(records), records[0]) == (4, expected)


@pytest.mark.parametrize("ask", ["label", "expand", "correct"])
def test_the_form_of_plain_models_leaves_conversations_out(
    ask: str, teacher: FakeTeacher, tmp_path: Path
) -> None:
    """The teacher would answer what stands before, which the student would not see."""
    told = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    lines = [{"messages": told, "completion": "four"}, *ANSWERED]
    made = make(teacher, tmp_path, lines, ask=ask, num=2, as_messages=False)
    assert [one["prompt"] for one in written(tmp_path)] == [one["prompt"] for one in ANSWERED]
    assert made.dropped == {"several messages, which no completion can hold": 1}
    assert not any("Be brief." in json.dumps(body) for body in teacher.bodies)
    (tmp_path / "out.jsonl").unlink()
    make(teacher, tmp_path, lines, ask=ask, num=3)
    assert written(tmp_path)[0]["messages"][:2] == told


def test_label_answers_prompts_that_have_other_completions_once(
    teacher: FakeTeacher, tmp_path: Path
) -> None:
    lines = [{"prompt": "What is it?", "completion": said} for said in ("this", "that")]
    made = make(teacher, tmp_path, lines)
    assert len(written(tmp_path)) == 1
    assert made.dropped == {"came before": 1}


def test_a_second_run_asks_nothing_and_writes_the_same(
    teacher: FakeTeacher, tmp_path: Path
) -> None:
    make(teacher, tmp_path, PROMPTS, ask="expand", num=40)
    first, num = (tmp_path / "out.jsonl").read_bytes(), teacher.num_asked
    (tmp_path / "out.jsonl").unlink()
    again = make(teacher, tmp_path, PROMPTS, ask="expand", num=40, limits={"concurrency": 3})
    assert (tmp_path / "out.jsonl").read_bytes() == first
    assert (teacher.num_asked, again.num_requests) == (num, 0)
    # Another number goes on from there.
    make(teacher, tmp_path, PROMPTS, ask="expand", num=60)
    assert len(written(tmp_path)) == 60
    assert set(teacher.asked.values()) == {1}


def test_expand_adds_tasks_that_are_unlike_each_other(teacher: FakeTeacher, tmp_path: Path) -> None:
    made = make(teacher, tmp_path, PROMPTS, ask="expand", num=90)
    records = list(read_records(tmp_path / "out.jsonl"))
    assert len(records) == made.num_examples == 90
    tasks = [words(one.messages[0]["content"]) for one in records]
    new = tasks[10:]
    for at, one in enumerate(new):
        assert all(rouge_l(one, other) < 0.7 for other in new[:at])
    assert made.dropped["a task like another"] > 0
    # One request for each answer, and one for each list.
    assert teacher.num_asked == 90 + teacher.reply.num_lists
    shown = [body for body in teacher.bodies if "Come up with" in body["messages"][0]["content"]]
    assert all("8. " in body["messages"][0]["content"] for body in shown)
    assert len({body["seed"] for body in shown}) == len(shown)
    assert any("please" in body["messages"][0]["content"] for body in shown)


def test_tasks_that_were_not_needed_stand_in_for_those_without_an_answer(tmp_path: Path) -> None:
    scholar = Scholar()

    def reply(prompt: str) -> str:
        return "I cannot say." if prompt.startswith(("Compare", "Praise")) else scholar(prompt)

    with running_teacher(reply=reply) as teacher:
        made = make(teacher, tmp_path, PROMPTS[:1], ask="expand", num=7)
    assert (made.num_examples, scholar.num_lists) == (7, 2)
    assert made.failures["refused"] >= 1


def test_a_teacher_without_new_ideas_ends_the_run(tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        return "1. Name a river of Asia." if "Come up with" in prompt else "Fine."

    with running_teacher(reply=reply) as teacher:
        made = make(teacher, tmp_path, PROMPTS[:3], ask="expand", num=20)
    assert made.num_examples == 4
    num_lists = made.dropped["a task like another"]
    assert 32 <= num_lists < 40
    assert made.notes == (f"{num_lists} lists in a row brought no new task",)


def test_a_teacher_that_repeats_itself_near_the_goal_goes_on(tmp_path: Path) -> None:
    """One list of a dozen has a new task."""
    scholar, num_lists = Scholar(), itertools.count(1)

    def reply(prompt: str) -> str:
        if "Come up with" in prompt and next(num_lists) % 12:
            return "1. Name a river of Asia."
        return scholar(prompt)

    with running_teacher(reply=reply) as teacher:
        made = make(teacher, tmp_path, PROMPTS[:3], ask="expand", num=7)
    assert (made.num_examples, made.notes) == (7, ())


def test_a_teacher_that_refuses_its_own_tasks_ends_the_run_for_that(tmp_path: Path) -> None:
    scholar = Scholar()

    def reply(prompt: str) -> str:
        return "I cannot say." if prompt.endswith("please") else scholar(prompt)

    lines = [{"prompt": f"Tell me about {noun} {at}"} for at in range(12) for noun in NOUNS]
    with running_teacher(reply=reply) as teacher:
        made = make(teacher, tmp_path, lines, ask="expand", num=121)
    assert made.num_examples == 120
    (note,) = made.notes
    assert note.endswith("new tasks in a row got no answer that is kept")
    assert made.failures["refused"] >= 32
    assert scholar.num_lists < 20


def test_curate_goes_through_topics_and_entities(teacher: FakeTeacher, tmp_path: Path) -> None:
    topics = [{"topic": "Italy"}, {"topic": "physics", "entities": ["Newton"]}]
    made = make(teacher, tmp_path, topics, ask="curate", num=20, limits={"concurrency": 1})
    assert made.num_examples == 20
    asked = [body["messages"][0]["content"] for body in teacher.bodies]
    lists = [one for one in asked if "Come up with" in one]
    parts = ("Rome, in the field of Italy", "Newton, in the field of physics", "Milan, in the")
    for part, one in zip(parts, lists, strict=False):
        assert f"about {part}" in one


def test_prefer_keeps_the_pairs_that_the_order_does_not_decide(
    teacher: FakeTeacher, tmp_path: Path
) -> None:
    pairs = [("good", "bad"), ("bad", "good"), ("tie", "tie2")]
    lines = [{"prompt": f"q{at}", "answers": pair} for at, pair in enumerate(pairs)]
    made = make(teacher, tmp_path, lines, ask="prefer", as_messages=False)
    assert written(tmp_path) == [
        {"prompt": "q0", "completion": "good", "rejected": "bad"},
        {"prompt": "q1", "completion": "good", "rejected": "bad"},
    ]
    assert made.dropped == {"a pair judged by its order": 1}
    assert {body["temperature"] for body in teacher.bodies} == {0.0}


ANSWERED = [
    {"prompt": "What is 2 + 2?", "completion": "four"},
    {"prompt": "What is two and two?", "completion": "five"},
]


def test_correct_writes_better_answers(teacher: FakeTeacher, tmp_path: Path) -> None:
    make(teacher, tmp_path, ANSWERED, ask="correct", as_messages=False)
    assert written(tmp_path) == [
        {"prompt": "What is 2 + 2?", "completion": "four"},
        {"prompt": "What is two and two?", "completion": "It is four.", "rejected": "five"},
    ]


def test_harder_adds_tasks_like_those_that_went_wrong(teacher: FakeTeacher, tmp_path: Path) -> None:
    made = make(teacher, tmp_path, ANSWERED, ask="harder", num=12)
    assert made.num_examples == 12
    asked = [body["messages"][0]["content"] for body in teacher.bodies]
    lists = [one for one in asked if "Come up with" in one]
    assert lists
    assert all("two and two" in one for one in lists)
    right = make(teacher, tmp_path, ANSWERED[:1], ask="harder", num=5)
    assert (right.num_examples, len(right.notes)) == (1, 1)


def test_a_task_that_was_answered_before_is_not_written_again(tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        if prompt.startswith("Mark"):
            return "WRONG\nFour."
        new = "1. What is two and two?\n2. Name a number above nine."
        return new if "Come up with" in prompt else "Ten."

    with running_teacher(reply=reply) as teacher:
        made = make(teacher, tmp_path, ANSWERED[1:], ask="harder", num=2, as_messages=False)
    assert [one["prompt"] for one in written(tmp_path)] == [
        "What is two and two?",
        "Name a number above nine.",
    ]
    assert made.dropped == {"a task like another": 1}


def test_answers_that_were_cut_are_left_out_unless_they_are_wanted(tmp_path: Path) -> None:
    with running_teacher(finish_reason="length") as teacher:
        with pytest.raises(TeacherError, match=r"cut off \(10\)"):
            make(teacher, tmp_path, PROMPTS)
        assert not (tmp_path / "out.jsonl").exists()
        made = make(teacher, tmp_path, PROMPTS, keeps_cut=True)
        assert (made.num_examples, made.num_requests) == (10, 0)


def test_where_most_answers_fail_the_others_are_written(tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        return "Yes." if "river" in prompt or "poet" in prompt else "I cannot help with that."

    with (
        running_teacher(reply=reply) as teacher,
        pytest.raises(TeacherError, match=r"8 of 10: refused \(8\)") as raised,
    ):
        make(teacher, tmp_path, PROMPTS)
    assert "has 2 examples" in raised.value.remedy
    assert len(written(tmp_path)) == 2


def test_a_teacher_that_goes_away_leaves_what_it_said(tmp_path: Path) -> None:
    lines = [{"prompt": f"number {at}"} for at in range(40)]
    with running_teacher(faults=[Fault(times=15), Fault(status=500)]) as teacher:
        with pytest.raises(TeacherError, match="does not answer") as raised:
            make(teacher, tmp_path, lines)
        assert "has 15 examples" in raised.value.remedy
        assert len(written(tmp_path)) == 15
        teacher.faults.clear()
        assert make(teacher, tmp_path, lines).num_examples == 40
        assert set(teacher.answered.values()) == {1}


def test_the_budget_ends_a_run_with_a_note(teacher: FakeTeacher, tmp_path: Path) -> None:
    small = {"max_tokens_total": 500}
    made = make(teacher, tmp_path, PROMPTS, answer_tokens=20, limits=small)
    assert 0 < made.num_examples < 10
    assert made.num_tokens <= 500
    assert made.notes == ("the budget of tokens ended the run",)
    with pytest.raises(TeacherError, match="too small"):
        make(teacher, tmp_path, [{"prompt": "another"}], limits={"max_tokens_total": 100})


def test_a_budget_that_ends_before_any_task_is_answered_is_what_is_told(tmp_path: Path) -> None:
    """Each list is long and costs most of the budget."""
    scholar = Scholar()

    def reply(prompt: str) -> str:
        lists = "\n".join(scholar("Come up with") for _ in range(8))
        return lists if "Come up with" in prompt else "Fine."

    with running_teacher(reply=reply, usage=lambda prompt, text: len(text)) as teacher:
        options = {"answer_tokens": 3000, "limits": {"max_tokens_total": 6000, "concurrency": 1}}
        made = make(teacher, tmp_path, PROMPTS[:1], ask="expand", num=80, **options)
    assert made.notes == ("the budget of tokens ended the run",)
    assert made.num_examples == 1


def test_no_file_of_others_is_replaced(teacher: FakeTeacher, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        make(teacher, tmp_path, PROMPTS)
    assert (tmp_path / "out.jsonl").read_text() == "mine"
    assert teacher.num_asked == 0


@pytest.mark.parametrize(
    "options",
    [
        {"ask": "wonder"},
        {"ask": "expand"},
        {"num": 0},
        {"answer_tokens": 0},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"likeness": 1.1},
    ],
)
def test_options_out_of_range_ask_nothing(options, teacher: FakeTeacher, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        make(teacher, tmp_path, PROMPTS, **options)
    assert {one.name for one in tmp_path.iterdir()} == {"in.jsonl"}
    assert teacher.num_asked == 0


def test_a_line_with_a_rejected_answer_is_a_record(teacher: FakeTeacher, tmp_path: Path) -> None:
    make(teacher, tmp_path, ANSWERED, ask="correct")
    assert not any(isinstance(one, UnusableError) for one in read_records(tmp_path / "out.jsonl"))


@pytest.mark.parametrize(("ask", "num"), [("expand", 30), ("curate", 20), ("label", None)])
def test_progress_is_the_share_of_the_examples(
    ask: str, num: int | None, teacher: FakeTeacher, tmp_path: Path
) -> None:
    """Lists and useless answers do not count, and a run that goes on counts what is there."""
    lines = (
        [{"topic": "poets"}] if ask == "curate" else [{"prompt": f"Say {at}"} for at in range(9)]
    )
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    config = SynthesisConfig(
        ask=ask, input=path, teacher=TeacherConfig(address=teacher.url, model="big"), num=num
    )
    output, expected = tmp_path / "out.jsonl", num or len(lines)
    for _ in range(2):
        shares = [0.0]
        made = synthesize(config, output, on_progress=lambda _, share, to=shares: to.append(share))
        assert list(dict.fromkeys(shares)) == [at / expected for at in range(expected + 1)]
        assert made.num_examples == expected
