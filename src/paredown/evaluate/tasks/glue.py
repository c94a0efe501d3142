"""The eight GLUE tasks that papers on quantized encoders report (arXiv 1804.07461): what their
files hold, and how answers are scored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from paredown.errors import ConfigError
from paredown.evaluate.metrics.accuracy import accuracy
from paredown.evaluate.metrics.f1 import f1
from paredown.evaluate.metrics.matthews import matthews
from paredown.evaluate.metrics.pearson import pearson
from paredown.evaluate.metrics.spearman import spearman

# Numbers of labels, or scores, one an answer.
Answers = NDArray[Any]
# Returns the score of answers, beside what the file says.
Metric = Callable[[Answers, Answers], float]

METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "F1": f1,
    "Matthews": matthews,
    "Pearson": pearson,
    "Spearman": spearman,
}


@dataclass(frozen=True, kw_only=True)
class Places:
    """The columns of a file without a header, which has one of `num_columns` of them."""

    label: int
    sentences: tuple[int, ...]
    num_columns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """A task with one or two sentences a row.

    `sentences`, `label`   the columns' names in the header
    `labels`    the name of each label by what the file says, in the order of their numbers; empty
                where the label is a number from 0 to 5
    `metrics`   names in METRICS; the first one is the task's score
    `sets`      the files of each set that it is judged on. The first that exists and has labels is
                read: a test file has them where it comes from the task's own authors
    `headless`  the columns of files without a header; None where every file has one
    `undecided` labels that say that people did not agree; such rows are left out
    """

    name: str
    sentences: tuple[str, ...]
    label: str
    labels: Mapping[str, str]
    metrics: tuple[str, ...]
    sets: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"": ("test.tsv", "dev.tsv")}
    )
    headless: Places | None = None
    undecided: frozenset[str] = frozenset()

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number."""
        return not self.labels

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels, in the order of their numbers."""
        return tuple(self.labels.values())

    def scores(self, answers: Answers, expected: Answers) -> dict[str, float]:
        """Returns each metric of the answers, by name."""
        return {name: METRICS[name](answers, expected) for name in self.metrics}


TASKS: dict[str, GlueTask] = {
    "glue-cola": GlueTask(
        name="CoLA",
        sentences=("sentence",),
        label="label",
        labels={"0": "unacceptable", "1": "acceptable"},
        metrics=("Matthews",),
        headless=Places(label=1, sentences=(3,), num_columns=(4,)),
    ),
    "glue-sst2": GlueTask(
        name="SST-2",
        sentences=("sentence",),
        label="label",
        labels={"0": "negative", "1": "positive"},
        metrics=("accuracy",),
    ),
    "glue-mrpc": GlueTask(
        name="MRPC",
        sentences=("#1 String", "#2 String"),
        label="Quality",
        labels={"0": "not_equivalent", "1": "equivalent"},
        metrics=("accuracy", "F1"),
        sets={"": ("test.tsv", "msr_paraphrase_test.txt", "dev.tsv")},
    ),
    "glue-stsb": GlueTask(
        name="STS-B",
        sentences=("sentence1", "sentence2"),
        label="score",
        labels={},
        metrics=("Spearman", "Pearson"),
        sets={"": ("sts-test.csv", "test.tsv", "sts-dev.csv", "dev.tsv")},
        headless=Places(label=4, sentences=(5, 6), num_columns=(7, 8, 9)),
    ),
    "glue-qqp": GlueTask(
        name="QQP",
        sentences=("question1", "question2"),
        label="is_duplicate",
        labels={"0": "not_duplicate", "1": "duplicate"},
        metrics=("accuracy", "F1"),
    ),
    "glue-mnli": GlueTask(
        name="MNLI",
        sentences=("sentence1", "sentence2"),
        label="gold_label",
        labels={name: name for name in ("entailment", "neutral", "contradiction")},
        metrics=("accuracy",),
        sets={
            "matched": ("test_matched.tsv", "dev_matched.tsv"),
            "mismatched": ("test_mismatched.tsv", "dev_mismatched.tsv"),
        },
        undecided=frozenset({"-"}),
    ),
    "glue-qnli": GlueTask(
        name="QNLI",
        sentences=("question", "sentence"),
        label="label",
        labels={name: name for name in ("entailment", "not_entailment")},
        metrics=("accuracy",),
    ),
    "glue-rte": GlueTask(
        name="RTE",
        sentences=("sentence1", "sentence2"),
        label="label",
        labels={name: name for name in ("entailment", "not_entailment")},
        metrics=("accuracy",),
    ),
}


def find_task(name: str) -> GlueTask:
    """Returns the task of that name, "glue-sst2" or "sst2". Raises ConfigError."""
    found = TASKS.get(name) or TASKS.get(f"glue-{name}")
    if found is None:
        raise ConfigError(
            "there is no such GLUE task", seen=name, remedy=f"Known ones: {', '.join(TASKS)}."
        )
    return found
