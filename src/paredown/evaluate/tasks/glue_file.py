"""Reads the files of GLUE tasks.

They are separated by tabs and know no quoting: a quote is a character like others, and often stands
alone. Some begin with a byte-order mark, and some rows of QQP are cut in two.
"""

import codecs
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paredown.errors import ConfigError
from paredown.evaluate.tasks.glue import Answers, GlueTask, Places
from paredown.evaluate.texts.text import DATA_VARIABLE, read_text

DATA_FOLDER = Path("tasks") / "glue"
# A file with more broken rows than this share is of another kind.
_MOST_BROKEN = 0.01
_MOST_SCORE = 5.0
# What stands for a label in test files that were made without.
_UNKNOWN = "-1"
_TRAINING_FILES = ("train.tsv", "sts-train.csv", "msr_paraphrase_train.txt")
_BYTE_ORDER_MARK = codecs.BOM_UTF8.decode()


@dataclass(frozen=True, kw_only=True)
class GlueExamples:
    """The rows of one file. `labels` are numbers of labels, or scores. `set_name` is that of the
    task's set ("matched"), empty where it has one. `num_left_out` rows are broken or undecided."""

    task: GlueTask
    set_name: str
    path: Path
    texts: tuple[tuple[str, ...], ...]
    labels: Answers
    num_left_out: int

    def first(self, num_rows: int | None) -> "GlueExamples":
        """Returns the first rows alone. Raises ConfigError for none."""
        if num_rows is None:
            return self
        if num_rows < 1:
            raise ConfigError(
                "there is nothing to answer", seen=num_rows, remedy="Give --limit 1 or more."
            )
        return GlueExamples(
            task=self.task,
            set_name=self.set_name,
            path=self.path,
            texts=self.texts[:num_rows],
            labels=self.labels[:num_rows],
            num_left_out=self.num_left_out,
        )


def read_glue(task: GlueTask, path: Path, set_name: str = "") -> GlueExamples:
    """Reads a file of the task. Raises ConfigError for one without labels or of another form, and
    CheckpointError for one that cannot be read."""
    lines = read_text(path).removeprefix(_BYTE_ORDER_MARK).split("\n")
    rows = [line.removesuffix("\r").split("\t") for line in lines]
    places, num_header_rows = _places(task, rows[0], path)
    texts, labels, num_broken, num_undecided = [], [], 0, 0
    for number, row in enumerate(rows[num_header_rows:], num_header_rows + 1):
        if row == [""]:
            continue
        if len(row) not in places.num_columns:
            num_broken += 1
        elif row[places.label] in task.undecided:
            num_undecided += 1
        else:
            labels.append(_label(task, row[places.label], path, number))
            texts.append(tuple(row[place] for place in places.sentences))
    if not texts or num_broken > _MOST_BROKEN * len(texts):
        raise _other_form(
            task, path, f"{len(texts):,} rows of its columns and {num_broken:,} others"
        )
    return GlueExamples(
        task=task,
        set_name=set_name,
        path=path,
        texts=tuple(texts),
        labels=np.array(labels, dtype=np.float64 if task.is_regression else np.int64),
        num_left_out=num_broken + num_undecided,
    )


def read_glue_sets(task: GlueTask, path: Path | None = None) -> list[GlueExamples]:
    """Reads the sets that the task is judged on: from the file or folder `path`, else from the
    task's folder under $PAREDOWN_DATA. Raises ConfigError where there is none with labels."""
    if path is not None and path.is_file():
        return [read_glue(task, path)]
    folder = _folder(task, path)
    return [_read_set(task, folder, name, files) for name, files in task.sets.items()]


def read_glue_training(task: GlueTask, path: Path | None = None) -> GlueExamples:
    """Reads the file that the task is learned from: the one in the folder `path` or beside the
    file, else in the task's folder under $PAREDOWN_DATA. Raises ConfigError where there is none."""
    folder = _folder(task, path if path is None or path.is_dir() else path.parent)
    return _read_set(task, folder, "", _TRAINING_FILES)


def _folder(task: GlueTask, path: Path | None) -> Path:
    if path is not None:
        return path
    data = os.environ.get(DATA_VARIABLE)
    if data is None:
        raise ConfigError(
            f"the files of {task.name} are not there",
            seen=f"{DATA_VARIABLE} is not set",
            remedy=f"Set {DATA_VARIABLE} to a folder that holds {DATA_FOLDER / task.name}, or "
            "name a file or folder with --text.",
        )
    return Path(data) / DATA_FOLDER / task.name


def _read_set(task: GlueTask, folder: Path, name: str, files: Sequence[str]) -> GlueExamples:
    unlabelled = None
    for file in files:
        if (folder / file).is_file():
            try:
                return read_glue(task, folder / file, name)
            except UnlabelledError as error:
                unlabelled = error
    if unlabelled is not None:
        raise unlabelled
    raise ConfigError(
        f"the files of {task.name} are not there",
        seen=f"none of {', '.join(files)} in {folder}",
        remedy="Name a file or folder with --text.",
    )


class UnlabelledError(ConfigError):
    """A file has sentences and no labels, as GLUE's test files do."""


def _places(task: GlueTask, first: Sequence[str], path: Path) -> tuple[Places, int]:
    """Returns where the columns are, and how many rows the header takes."""
    has_sentences = all(name in first for name in task.sentences)
    if has_sentences and task.label not in first:
        raise _unlabelled(task, path, f"the columns {', '.join(first)}")
    if has_sentences:
        return Places(
            label=first.index(task.label),
            sentences=tuple(first.index(name) for name in task.sentences),
            num_columns=(len(first),),
        ), 1
    if task.headless is None:
        raise _other_form(task, path, f"a first row of {', '.join(first)}")
    return task.headless, 0


def _label(task: GlueTask, value: str, path: Path, number: int) -> float:
    if value == _UNKNOWN:
        raise _unlabelled(task, path, f"{value} in line {number}")
    if not task.is_regression:
        if value not in task.labels:
            raise _other_form(task, path, f"the label {value!r} in line {number}")
        return list(task.labels).index(value)
    try:
        score = float(value)
    except ValueError:
        score = math.nan
    if not 0 <= score <= _MOST_SCORE:
        raise _other_form(task, path, f"the score {value!r} in line {number}")
    return score


def _unlabelled(task: GlueTask, path: Path, seen: str) -> UnlabelledError:
    return UnlabelledError(
        f"{path} has no labels of {task.name}",
        seen=seen,
        remedy="Name a file with labels: GLUE's test files have none, its dev files do.",
    )


def _other_form(task: GlueTask, path: Path, seen: str) -> ConfigError:
    columns = ", ".join((*task.sentences, task.label))
    known = f" or of {' or '.join(map(str, task.headless.num_columns))}" if task.headless else ""
    return ConfigError(
        f"{path} is not a file of {task.name}",
        seen=seen,
        remedy=f"Name a file of tab-separated columns with {columns} in its header"
        f"{known and known + ' columns without one'}.",
    )
