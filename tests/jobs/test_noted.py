"""Notes of earlier work come before those of what is finished."""

from pathlib import Path

from paredown.jobs.noted import noted


def test_earlier_notes_come_first_and_finish_is_called_once(tmp_path: Path) -> None:
    told = list[tuple[Path, tuple[str, ...]]]()
    finish = noted(lambda folder, notes: told.append((folder, notes)), ("cut", "measured"))
    finish(tmp_path, ("quantized",))
    assert told == [(tmp_path, ("cut", "measured", "quantized"))]


def test_nobody_need_be_told(tmp_path: Path) -> None:
    noted(None, ("cut",))(tmp_path, ("quantized",))
