"""A teacher's distributions are written once and read as if it ran; a run that was stopped goes on
to the same bytes, and what does not belong together is told."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from drivers.tiny_training import VOCAB_SIZE, random_rows, uneven_rows
from fakes.small_tokenizers import byte_level
from fakes.tiny_models import make_model
from paredown.distill.arithmetic import Arithmetic
from paredown.distill.losses.jsd import JSD
from paredown.distill.losses.kl import KL
from paredown.distill.losses.reverse_kl import ReverseKL
from paredown.distill.losses.slim import SLIM
from paredown.distill.losses.soft_label import SoftLabel
from paredown.distill.losses.token_loss import TokenLoss
from paredown.distill.rows import Rows, Text
from paredown.distill.teacher import DecoderTeacher, Teacher
from paredown.distill.teacher_logits import row_writer, write
from paredown.distill.teacher_logits.header import NAME
from paredown.distill.teacher_logits.keeps import parse_keep
from paredown.distill.teacher_logits.row_index import INDEX, ROWS
from paredown.distill.teacher_logits.stored_teacher import StoredTeacher
from paredown.distill.teacher_logits.stored_text import StoredText
from paredown.distill.teacher_logits.write import write_teacher_logits
from paredown.errors import (
    CapacityError,
    CheckpointError,
    ConfigError,
    OutputError,
    ParedownError,
)
from paredown.models.checkpoint import Checkpoint

TEXTS = [Text(token_ids=list(range(start, start + 5))) for start in range(2, 20, 3)]
TRAINED = Rows.pack(TEXTS, 12)
HELD_OUT = uneven_rows([3, 0, 9], 12)
KEEPS = ["samples-5", "top-7", "top-7-renormalized", "whole"]


def save(folder: Path, seed: int, token: str | None = None) -> Checkpoint:
    make_model("llama", torch.float32, seed).save_pretrained(folder)
    byte_level(*([] if token is None else [token])).save(str(folder / "tokenizer.json"))
    return Checkpoint.open(folder)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return save(tmp_path_factory.mktemp("models") / "teacher", 9)


def text_of(
    teacher: Checkpoint,
    keep: str,
    rows: tuple[Rows, ...] = (TRAINED, HELD_OUT),
    arithmetic: Arithmetic = "fp32",
    seed: int = 0,
) -> StoredText:
    return StoredText.of(teacher, rows, parse_keep(keep), arithmetic, seed)


def written(folder: Path, text: StoredText) -> StoredTeacher:
    write_teacher_logits(folder, text, num_threads=1)
    return StoredTeacher.open(folder, text)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def predicted(teacher: Teacher, rows: Rows, order: list[int]) -> Tensor:
    return teacher.predict(rows.batch(np.array(order)))(slice(None))


@pytest.mark.parametrize("loss", [KL(), SoftLabel(), ReverseKL(), JSD(), SLIM()], ids=repr)
def test_the_whole_teaches_what_the_teacher_does(
    loss: TokenLoss, teacher: Checkpoint, tmp_path: Path
) -> None:
    stored = written(tmp_path / "logits", text_of(teacher, "whole"))
    live = DecoderTeacher.load(teacher, "fp32")
    for rows in (TRAINED, HELD_OUT):
        batch = rows.batch(np.arange(rows.num_rows))
        logits_NV = torch.randn(batch.num_targets, VOCAB_SIZE)
        own, theirs = (
            loss.losses(logits_NV, batch.targets(), one.predict(batch)(slice(None))).mean().item()
            for one in (stored, live)
        )
        assert own == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("keep", KEEPS)
def test_rows_are_found_in_any_order_and_parts(
    keep: str, teacher: Checkpoint, tmp_path: Path
) -> None:
    stored = written(tmp_path / "logits", text_of(teacher, keep))
    whole_NV = predicted(stored, TRAINED, list(range(TRAINED.num_rows)))
    assert len(whole_NV) == TRAINED.is_target_NT.sum()
    last_NV = predicted(stored, TRAINED, [TRAINED.num_rows - 1])
    assert torch.equal(
        predicted(stored, TRAINED, [TRAINED.num_rows - 1, 0])[: len(last_NV)], last_NV
    )
    batch = TRAINED.batch(np.arange(TRAINED.num_rows))
    parts = [stored.predict(part)(slice(None)) for part in batch.split(1)]
    assert torch.equal(torch.cat(parts), whole_NV)
    known = stored.predict(batch)
    for rows in (slice(0, 9), slice(9, 11), slice(10, 99), slice(4, 4)):
        assert torch.equal(known(rows), whole_NV[rows])


def test_the_same_row_is_stored_once_and_each_has_draws_of_its_own(
    teacher: Checkpoint, tmp_path: Path
) -> None:
    rows = random_rows(2, 12)
    twice = Rows.from_windows(rows.tokens_NT[[0, 1, 0]])
    text = text_of(teacher, "samples-5", (twice, rows))
    assert text.header.num_rows == 2
    stored = written(tmp_path / "logits", text)
    first, second, again = predicted(stored, twice, [0, 1, 2]).split(11)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    other = written(tmp_path / "other", text_of(teacher, "samples-5", (twice, rows), seed=1))
    assert not torch.equal(predicted(other, twice, [0]), first)


def interrupted_after(rows: int, folder: Path, text: StoredText) -> None:
    def stop(what: str, share: float) -> None:
        if share * text.header.num_rows >= rows:  # one row is under way
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_teacher_logits(folder, text, num_threads=1, on_progress=stop)


def torn_index(folder: Path) -> None:
    with (folder / INDEX).open("ab") as file:
        file.write(b"torn")


def torn_row(folder: Path) -> None:
    with (folder / ROWS).open("ab") as file:
        file.write(b"half a row" * 100_000)


def lost_rows(folder: Path) -> None:
    os.truncate(folder / ROWS, (folder / ROWS).stat().st_size - 3)


def zeros_after_a_power_cut(folder: Path) -> None:
    size = (folder / ROWS).stat().st_size
    os.truncate(folder / ROWS, size - 3)
    os.truncate(folder / ROWS, size)


def lost_index(folder: Path) -> None:
    os.truncate(folder / INDEX, 0)


def no_rows_at_all(folder: Path) -> None:
    (folder / ROWS).unlink()


def nothing(folder: Path) -> None:
    pass


DAMAGES = [nothing, torn_index, torn_row, lost_rows, zeros_after_a_power_cut, lost_index]


def test_threads_do_not_change_the_bytes(teacher: Checkpoint, tmp_path: Path) -> None:
    text = text_of(teacher, "whole")
    written(tmp_path / "one", text)
    write_teacher_logits(tmp_path / "three", text, num_threads=3)
    assert contents(tmp_path / "three") == contents(tmp_path / "one")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("keep", ["samples-5", "whole"])
def test_a_run_that_goes_on_ends_in_the_same_bytes(
    keep: str, damage: Callable[[Path], None], teacher: Checkpoint, tmp_path: Path
) -> None:
    text = text_of(teacher, keep)
    written(tmp_path / "whole", text)
    interrupted_after(2, tmp_path / "logits", text)
    with pytest.raises(ConfigError, match=f"2 of {text.header.num_rows} rows"):
        StoredTeacher.open(tmp_path / "logits", text)
    damage(tmp_path / "logits")
    written(tmp_path / "logits", text)
    assert contents(tmp_path / "logits") == contents(tmp_path / "whole")


@pytest.mark.parametrize("damage", [lost_rows, no_rows_at_all, lost_index, torn_index])
def test_what_a_whole_folder_lost_is_written_again(
    damage: Callable[[Path], None], teacher: Checkpoint, tmp_path: Path
) -> None:
    text = text_of(teacher, "samples-5")
    written(tmp_path / "logits", text)
    before = contents(tmp_path / "logits")
    damage(tmp_path / "logits")
    written(tmp_path / "logits", text)
    assert contents(tmp_path / "logits") == before


def test_what_is_whole_is_not_computed_again(
    teacher: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = text_of(teacher, "samples-5")
    written(tmp_path / "logits", text)
    before = contents(tmp_path / "logits")
    monkeypatch.delattr(DecoderTeacher, "load")
    written(tmp_path / "logits", text)
    assert contents(tmp_path / "logits") == before
    elsewhere = text_of(teacher, "samples-5", arithmetic="bf16")
    StoredTeacher.open(tmp_path / "logits", elsewhere)


def test_a_full_disk_is_told_and_whole_rows_stay(
    teacher: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = text_of(teacher, "samples-5")
    written(tmp_path / "whole", text)
    calls = 0
    real = row_writer._write

    def full(file: object, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:  # the index of the second row
            real(file, data[:5])  # type: ignore[arg-type]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, data)  # type: ignore[arg-type]

    monkeypatch.setattr(row_writer, "_write", full)
    with pytest.raises(OutputError, match=r"No space left.*goes on after the rows"):
        write_teacher_logits(tmp_path / "logits", text, num_threads=1)
    with pytest.raises(ConfigError, match="1 of"):
        StoredTeacher.open(tmp_path / "logits", text)
    written(tmp_path / "logits", text)
    assert contents(tmp_path / "logits") == contents(tmp_path / "whole")


def test_a_disk_that_is_too_small_is_told_before_any_work(
    teacher: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs(tmp_path)
    small = os.statvfs_result([*found[:4], 0, *found[5:10]])
    monkeypatch.setattr(write.os, "statvfs", lambda path: small)
    with pytest.raises(OutputError, match="do not fit on the disk"):
        write_teacher_logits(tmp_path / "logits", text_of(teacher, "whole"))


def test_a_teacher_that_does_not_fit_in_memory_is_told(
    teacher: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "free_bytes", lambda device: 1000)
    with pytest.raises(CapacityError, match="teacher does not fit"):
        write_teacher_logits(tmp_path / "logits", text_of(teacher, "samples-5"))


def test_distributions_of_something_else_are_told(teacher: Checkpoint, tmp_path: Path) -> None:
    text, folder = text_of(teacher, "samples-5"), tmp_path / "logits"
    written(folder, text)
    before = contents(folder)
    own = Path(shutil.copytree(teacher.path, tmp_path / "own"))
    byte_level("<more>").save(str(own / "tokenizer.json"))
    for other, says in (
        (text_of(save(tmp_path / "other", 10), "samples-5"), "another teacher"),
        (text_of(Checkpoint.open(own), "samples-5"), "another tokenizer"),
        (text_of(teacher, "samples-6"), "another what is kept"),
        (text_of(teacher, "samples-5", (TRAINED,)), "another training and held-out text"),
        (text_of(teacher, "samples-5", seed=1), "another seed"),
    ):
        for use in (write_teacher_logits, StoredTeacher.open):
            with pytest.raises(ConfigError, match=says):
                use(folder, other)
    assert contents(folder) == before


def test_an_unfinished_run_goes_on_in_its_own_arithmetic(
    teacher: Checkpoint, tmp_path: Path
) -> None:
    interrupted_after(1, tmp_path / "logits", text_of(teacher, "samples-5"))
    with pytest.raises(ConfigError, match="another arithmetic"):
        write_teacher_logits(tmp_path / "logits", text_of(teacher, "samples-5", arithmetic="bf16"))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"keep": 5}', b"\xff", b"[" * 10_000])
def test_a_damaged_header_is_told(data: bytes, teacher: Checkpoint, tmp_path: Path) -> None:
    text, folder = text_of(teacher, "samples-5"), tmp_path / "logits"
    written(folder, text)
    (folder / NAME).write_bytes(data)
    for use in (write_teacher_logits, StoredTeacher.open):
        with pytest.raises(CheckpointError, match=r"header\.json is no header"):
            use(folder, text)


def test_a_header_of_another_version_is_told(teacher: Checkpoint, tmp_path: Path) -> None:
    text, folder = text_of(teacher, "samples-5"), tmp_path / "logits"
    written(folder, text)
    found = json.loads((folder / NAME).read_text())
    (folder / NAME).write_text(json.dumps(found | {"version": 2}))
    with pytest.raises(ConfigError, match="another version"):
        StoredTeacher.open(folder, text)


@pytest.mark.parametrize("keep", KEEPS)
def test_damaged_rows_are_told_when_they_are_read(
    keep: str, teacher: Checkpoint, tmp_path: Path
) -> None:
    text, folder = text_of(teacher, keep), tmp_path / "logits"
    written(folder, text)
    data = bytearray((folder / ROWS).read_bytes())
    data[1] ^= 8
    (folder / ROWS).write_bytes(data)
    stored = StoredTeacher.open(folder, text)
    with pytest.raises(CheckpointError, match="row 0 are damaged"):
        predicted(stored, TRAINED, [0])
    predicted(stored, TRAINED, [1])


def test_rows_that_fit_their_checksum_and_nothing_else_are_told(
    teacher: Checkpoint, tmp_path: Path
) -> None:
    five, six = text_of(teacher, "samples-5"), text_of(teacher, "samples-6")
    written(tmp_path / "logits", five)
    six.header.write(tmp_path / "logits")
    with pytest.raises(CheckpointError, match="add up to 6"):
        predicted(StoredTeacher.open(tmp_path / "logits", six), TRAINED, [0])


def test_other_folders_are_left_alone(teacher: Checkpoint, tmp_path: Path) -> None:
    text = text_of(teacher, "samples-5")
    with pytest.raises(ConfigError, match="no distributions"):
        StoredTeacher.open(tmp_path / "nowhere", text)
    (tmp_path / "letter.txt").write_text("dear")
    mode = tmp_path.stat().st_mode
    with pytest.raises(ConfigError, match=r"other files.*letter\.txt"):
        write_teacher_logits(tmp_path, text)
    assert tmp_path.stat().st_mode == mode
    with pytest.raises(ParedownError, match=r"letter\.txt"):
        write_teacher_logits(tmp_path / "letter.txt", text)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="link"):
        write_teacher_logits(tmp_path / "link", text)


@pytest.mark.parametrize("name", [NAME, INDEX, ROWS])
def test_links_are_not_followed(name: str, teacher: Checkpoint, tmp_path: Path) -> None:
    text, folder = text_of(teacher, "samples-5"), tmp_path / "logits"
    interrupted_after(1, folder, text)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    with pytest.raises(ParedownError):
        write_teacher_logits(folder, text)
    assert (tmp_path / "elsewhere").read_bytes() == before


def test_rows_without_targets_alone_have_nothing_to_keep(
    teacher: Checkpoint, tmp_path: Path
) -> None:
    rows = uneven_rows([0, 0], 12)
    stored = written(tmp_path / "logits", text_of(teacher, "whole", (rows,)))
    assert predicted(stored, rows, [0, 1]).shape == (0, VOCAB_SIZE)
    assert replace(stored, vocab_size=7).held_bytes == 0
