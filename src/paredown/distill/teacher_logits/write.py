"""Runs a teacher once over a text, and keeps its distributions in a folder (arXiv 2503.16870).

    header.json   of whom and of what they are (header.py)
    rows.bin      the rows' distributions (keep.py)
    rows.index    their places and checksums (row_index.py)
    lock          held by the process that writes

A row is predicted alone, by one thread, and drawn from with random numbers of its own. So a run
that goes on after a kill ends in the same bytes as an unbroken one, with any number of threads.
"""

import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paredown.distill.batch import Batch
from paredown.distill.teacher import DecoderTeacher, LogProbabilities, Teacher
from paredown.distill.teacher_logits.header import NAME, read_header
from paredown.distill.teacher_logits.row_index import ENTRY, INDEX, ROWS, read_entries
from paredown.distill.teacher_logits.row_writer import RowWriter, open_row_writer, unwritable
from paredown.distill.teacher_logits.stored_text import StoredText
from paredown.errors import CapacityError, ConfigError, OutputError
from paredown.files.own_file import open_own_file, read_own_file
from paredown.kernels.probe import resolve_num_threads
from paredown.models.decoder.device import free_bytes
from paredown.models.files.locked_folder import LOCK, locked_folder
from paredown.progress import OnProgress
from paredown.spec.device import Device
from paredown.units import format_bytes

_OWN_NAME = re.compile(
    rf"{LOCK}|{re.escape(NAME)}|{re.escape(ROWS)}|{re.escape(INDEX)}"
    rf"|\.{re.escape(NAME)}\.[0-9a-f]{{8}}\.partial"
)


def write_teacher_logits(
    folder: Path,
    text: StoredText,
    *,
    device: Device = "cpu",
    num_threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Writes what is missing of the teacher's distributions; nothing where they are whole. The
    teacher runs on that device.

    Raises ConfigError for a folder of something else, of another teacher or text, CheckpointError
    for a damaged header, CapacityError for a teacher that does not fit in memory, and OutputError
    for a disk that is full and for a folder that another process writes or another user made.
    Whole rows stay.
    """
    if _is_whole(folder, text):
        return
    _check_contents(folder)
    with locked_folder(folder, "teacher's distributions"):
        if read_header(folder) is None:
            _check_space(folder, text)
            text.header.write(folder)
        with open_row_writer(folder, text.header.num_rows) as writer:
            if writer.num_rows < text.header.num_rows:
                _check_memory(text, device)
                teacher = DecoderTeacher.load(text.teacher, text.header.arithmetic, device)
                # A GPU computes one row at a time.
                workers = resolve_num_threads(num_threads) if device == "cpu" else 1
                _write_rows(writer, text, _On(teacher, device), workers, on_progress)


class _On:
    """A teacher on a device, whose predictions come back to the processor."""

    def __init__(self, teacher: Teacher, device: Device) -> None:
        self._teacher, self._device = teacher, device

    def predict(self, batch: Batch) -> LogProbabilities:
        with torch.device(self._device):
            known = self._teacher.predict(batch.to(self._device))

        def log_probabilities(rows: slice) -> Tensor:
            return known(rows).to("cpu")

        return log_probabilities


def _write_rows(
    writer: RowWriter,
    text: StoredText,
    teacher: Teacher,
    num_threads: int,
    on_progress: OnProgress | None,
) -> None:
    number = text.header.num_rows
    with _workers(num_threads) as pool:
        waiting = deque[Future[bytes]]()
        for row, place in enumerate(list(text.places.values())[writer.num_rows :], writer.num_rows):
            waiting.append(pool.submit(_predicted, text, teacher, place))
            if len(waiting) > num_threads:
                writer.add(waiting.popleft().result())
            if on_progress is not None:
                told = f"predicting the text by the teacher: row {row + 1:,} of {number:,}"
                on_progress(told, row / number)
        while waiting:
            writer.add(waiting.popleft().result())


def _predicted(text: StoredText, teacher: Teacher, place: tuple[int, int]) -> bytes:
    """Returns what is kept of a row."""
    which, row = place
    batch = text.rows[which].batch(np.array([row]))
    random = np.random.default_rng([text.header.seed, *batch.inputs_BT[0].numpy()])
    known = teacher.predict(batch)
    return text.keep.encode(known, batch.num_targets, text.header.vocab_size, random)


def _is_whole(folder: Path, text: StoredText) -> bool:
    """Returns whether all rows are there. Raises ConfigError for those of something else."""
    found = read_header(folder)
    if found is None:
        return False
    is_whole = _num_whole_rows(folder, text.header.num_rows) == text.header.num_rows
    found.check_same(text.header, folder, is_whole=is_whole)
    return is_whole


def _num_whole_rows(folder: Path, most: int) -> int:
    """Returns how many rows the reader will find (mapped_rows.py); none in files that it will not
    read, which the writer mends or refuses."""
    try:
        index = read_own_file(folder / INDEX, most * ENTRY.itemsize)
        with open_own_file(folder / ROWS) as rows:
            num_bytes = os.fstat(rows.fileno()).st_size
    except OSError:
        return 0
    return len(read_entries(index, num_bytes, most))


def _check_contents(folder: Path) -> None:
    """Raises ConfigError for a folder with files that are not these, and OutputError for one that
    is none."""
    try:
        others = [one.name for one in folder.iterdir() if not _OWN_NAME.fullmatch(one.name)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise unwritable(folder, error) from error
    if others:
        raise ConfigError(
            f"{folder} holds other files, so no distributions are written there",
            seen=", ".join(sorted(others)[:3]),
            remedy="Give a folder of its own (--teacher-logits).",
        )


def _check_space(folder: Path, text: StoredText) -> None:
    """Raises OutputError where the disk has less than is needed at least."""
    num_targets = sum(
        int(text.rows[which].is_target_NT[row, 1:].sum()) for which, row in text.places.values()
    )
    needed = text.keep.least_bytes(num_targets, text.header.vocab_size)
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise OutputError(
            f"the teacher's distributions do not fit on the disk of {folder}",
            seen=f"{format_bytes(needed)} for {num_targets:,} targets, {format_bytes(free)} free",
            remedy="Keep less of them (--keep samples-50), or choose another folder.",
        )


def _check_memory(text: StoredText, device: Device) -> None:
    """Raises CapacityError for a teacher whose weights do not fit."""
    needed, available = 4 * text.teacher.spec.num_parameters(), free_bytes(device)
    if needed > available:
        raise CapacityError(
            "the teacher does not fit in memory",
            seen=f"{format_bytes(needed)} of {format_bytes(available)} available",
            remedy="Use a machine with more memory; the folder can be written there.",
        )


@contextmanager
def _workers(number: int) -> Iterator[ThreadPoolExecutor]:
    """Yields threads that compute alone; what has not begun is dropped at the end."""
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        # A thread's number of threads is that of threads that start later, too.
        torch.set_num_threads(before)
