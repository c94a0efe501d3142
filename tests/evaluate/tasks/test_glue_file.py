"""GLUE's files are read as they are, and what is no such file is refused with what is wrong."""

import os
from pathlib import Path

import numpy as np
import pytest

from paredown.errors import CheckpointError, ConfigError
from paredown.evaluate.tasks.glue import METRICS, TASKS, GlueTask, find_task
from paredown.evaluate.tasks.glue_file import UnlabelledError, read_glue, read_glue_sets

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
# The file of each task as GLUE has it, with its texts and labels.
FILES: dict[str, tuple[str, list[tuple[str, ...]], list[float]]] = {
    "cola": (
        "gj04\t1\t\tOur friends won't buy this analysis.\ngj04\t0\t*\tThe \"more we study.\n",
        [("Our friends won't buy this analysis.",), ('The "more we study.',)],
        [1, 0],
    ),
    "sst2": (
        "sentence\tlabel\nit 's a charming journey . \t1\nunflinchingly bleak\t0\n",
        [("it 's a charming journey . ",), ("unflinchingly bleak",)],
        [1, 0],
    ),
    "mrpc": (
        f"{BOM}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
        '1\t10\t11\tHe said so.\t"He said so.\r\n'
        "0\t12\t13\tShe left.\tShe came.\r\n",
        [("He said so.", '"He said so.'), ("She left.", "She came.")],
        [1, 0],
    ),
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain\tMSR\t2012\t1\tnone\tnone\tA plane.\tAn air plane.\t5.000\n"
        "1\tmain\tMSR\t2012\t4\tnone\tnone\tA flute.\tA man.\t0.8\n",
        [("A plane.", "An air plane."), ("A flute.", "A man.")],
        [5.0, 0.8],
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "7\t1\t2\tHow is it?\tHow's it?\t1\n8\t3\t4\tWhy?\t\t0\n",
        [("How is it?", "How's it?"), ("Why?", "")],
        [1, 0],
    ),
    "mnli": (
        "index\tpromptID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"
        "0\t1\tfiction\tA.\tB.\tneutral\tcontradiction\n"
        "1\t2\tfiction\tC.\tD.\tneutral\tneutral\n"
        "2\t3\tfiction\tE.\tF.\tneutral\t-\n",
        [("A.", "B."), ("C.", "D.")],
        [2, 1],
    ),
    "qnli": (
        "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn 1990.\tentailment\n"
        "1\tWho?\tIn 1991.\tnot_entailment\n",
        [("When?", "In 1990."), ("Who?", "In 1991.")],
        [0, 1],
    ),
    "rte": (
        "index\tsentence1\tsentence2\tlabel\n0\tIt is.\tIt was.\tnot_entailment\n",
        [("It is.", "It was.")],
        [1],
    ),
}
# Test files as GLUE has them: without labels.
UNLABELLED = {
    "cola": "index\tsentence\n0\tBill whistled past the house.\n",
    "sst2": "index\tsentence\n0\tuneasy mishmash of styles .\n",
    "mrpc": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tOne.\tTwo.\n",
    "stsb": "index\tgenre\tsentence1\tsentence2\n0\tmain\tOne.\tTwo.\n",
    "qqp": "id\tquestion1\tquestion2\n0\tOne?\tTwo?\n",
    "mnli": "index\tgenre\tsentence1\tsentence2\n0\tfiction\tOne.\tTwo.\n",
    "qnli": "index\tquestion\tsentence\n0\tOne?\tTwo.\n",
    "rte": "index\tsentence1\tsentence2\n0\tOne.\tTwo.\n",
}


def written(folder: Path, content: str, name: str = "dev.tsv") -> Path:
    path = folder / name
    path.write_bytes(content.encode())
    return path


def test_all_eight_tasks_are_tested() -> None:
    assert [f"glue-{name}" for name in FILES] == list(TASKS)
    assert FILES.keys() == UNLABELLED.keys()


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_it_is(name: str, tmp_path: Path) -> None:
    content, texts, labels = FILES[name]
    read = read_glue(find_task(name), written(tmp_path, content))
    assert list(read.texts) == texts
    assert read.labels.tolist() == labels
    assert read.num_left_out == (1 if name == "mnli" else 0)


@pytest.mark.parametrize("name", FILES)
def test_a_file_reads_the_same_with_a_mark_and_other_ends_of_lines(
    name: str, tmp_path: Path
) -> None:
    content = FILES[name][0].removeprefix(BOM).replace("\r\n", "\n")
    plain = read_glue(find_task(name), written(tmp_path, content))
    for other in (BOM + content, content.replace("\n", "\r\n"), content.rstrip("\n")):
        read = read_glue(find_task(name), written(tmp_path, other))
        assert read.texts == plain.texts
        assert read.labels.tolist() == plain.labels.tolist()


@pytest.mark.parametrize("name", UNLABELLED)
def test_a_file_without_labels_is_refused(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, UNLABELLED[name], "test.tsv")
    with pytest.raises(UnlabelledError, match=r"test\.tsv has no labels"):
        read_glue(find_task(name), path)


def test_minus_one_is_no_label(tmp_path: Path) -> None:
    with pytest.raises(UnlabelledError, match="-1 in line 2"):
        read_glue(find_task("sst2"), written(tmp_path, "sentence\tlabel\nA film .\t-1\n"))


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    content = "label\tnote\tsentence\n1\tx\tgood\n0\ty\tbad\n"
    read = read_glue(find_task("sst2"), written(tmp_path, content))
    assert read.texts == (("good",), ("bad",))


def test_other_line_separators_belong_to_a_sentence(tmp_path: Path) -> None:
    content = "sentence\tlabel\none\N{LINE SEPARATOR}two\x85three\x0bfour\t1\n"
    read = read_glue(find_task("sst2"), written(tmp_path, content))
    assert read.texts == (("one\N{LINE SEPARATOR}two\x85three\x0bfour",),)


def test_a_row_that_is_cut_in_two_is_left_out_and_counted(tmp_path: Path) -> None:
    whole = "".join(f"{i}\t1\t2\tA{i}?\tB?\t{i % 2}\n" for i in range(300))
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    read = read_glue(find_task("qqp"), written(tmp_path, f"{header}9\t1\t2\tA\nB?\t0\n{whole}"))
    assert len(read.texts) == 300
    assert read.num_left_out == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sst2", "", "not a file of SST-2"),
        ("sst2", "sentence\tlabel\n", "0 rows"),
        ("sst2", "text\tlabel\ngood\t1\n", "a first row of text, label"),
        ("sst2", "sentence\tlabel\ngood\t2\n", "the label '2' in line 2"),
        ("sst2", "sentence\tlabel\ngood\tand\t1\nbad\t0\n", "1 rows of its columns and 1 others"),
        ("rte", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\t1\n", "the label '1' in line 2"),
        ("stsb", "a\tb\tc\td\tnan\tA\tB\n", "the score 'nan' in line 1"),
        ("stsb", "a\tb\tc\td\t5.1\tA\tB\n", "the score '5.1' in line 1"),
        ("stsb", "a\tb\tc\td\thigh\tA\tB\n", "the score 'high' in line 1"),
        ("cola", "a\t1\t\tIt\tis.\n", "0 rows of its columns and 1 others"),
        ("cola", "a\tx\t\tIt is.\n", "the label 'x' in line 1"),
    ],
)
def test_a_file_of_another_form_is_refused(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as found:
        read_glue(find_task(name), written(tmp_path, content))
    assert not isinstance(found.value, UnlabelledError)


def test_files_that_cannot_be_read_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_glue(find_task("sst2"), tmp_path / "none.tsv")
    (tmp_path / "dev.tsv").write_bytes(b"sentence\tlabel\n\xff\xfe\t1\n")
    with pytest.raises(ConfigError, match="is not text"):
        read_glue(find_task("sst2"), tmp_path / "dev.tsv")


def test_a_folder_gives_the_first_file_that_has_labels(tmp_path: Path) -> None:
    task = find_task("sst2")
    with pytest.raises(ConfigError, match="not there"):
        read_glue_sets(task, tmp_path)
    written(tmp_path, UNLABELLED["sst2"], "test.tsv")
    with pytest.raises(UnlabelledError):
        read_glue_sets(task, tmp_path)
    written(tmp_path, FILES["sst2"][0])
    (found,) = read_glue_sets(task, tmp_path)
    assert found.path == tmp_path / "dev.tsv"
    written(tmp_path, FILES["sst2"][0], "test.tsv")
    assert read_glue_sets(task, tmp_path)[0].path == tmp_path / "test.tsv"


def test_both_sets_of_mnli_are_read(tmp_path: Path) -> None:
    written(tmp_path, FILES["mnli"][0], "dev_matched.tsv")
    with pytest.raises(ConfigError, match="dev_mismatched"):
        read_glue_sets(find_task("mnli"), tmp_path)
    written(tmp_path, FILES["mnli"][0], "dev_mismatched.tsv")
    found = read_glue_sets(find_task("mnli"), tmp_path)
    assert [one.set_name for one in found] == ["matched", "mismatched"]


def test_without_data_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAREDOWN_DATA", raising=False)
    with pytest.raises(ConfigError, match="PAREDOWN_DATA is not set"):
        read_glue_sets(find_task("sst2"))


def test_the_first_rows_alone(tmp_path: Path) -> None:
    read = read_glue(find_task("sst2"), written(tmp_path, FILES["sst2"][0]))
    assert read.first(1).texts == read.texts[:1]
    assert len(read.first(1).labels) == 1
    assert read.first(None) is read
    with pytest.raises(ConfigError, match="nothing to answer"):
        read.first(0)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ConfigError, match="glue-cola, glue-sst2"):
        find_task("wnli")


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_right_answers_score_best(task: GlueTask) -> None:
    assert set(task.metrics) <= set(METRICS)
    expected = np.arange(4.0) if task.is_regression else np.array([0, 1, 1, 0])
    assert list(task.scores(expected, expected).values()) == pytest.approx(
        [1.0] * len(task.metrics)
    )


@pytest.mark.skipif("PAREDOWN_DATA" not in os.environ, reason="needs PAREDOWN_DATA")
@pytest.mark.parametrize(
    ("name", "file", "num_rows"),
    [("mrpc", "dev.tsv", 408), ("sst2", "test.tsv", 872), ("stsb", "sts-test.csv", 1379)],
)
def test_the_real_files_are_read_whole(name: str, file: str, num_rows: int) -> None:
    (found,) = read_glue_sets(find_task(name))
    assert found.path.name == file
    assert len(found.texts) == num_rows
    assert found.num_left_out == 0
