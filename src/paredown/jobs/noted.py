"""A finish that is told of notes from earlier work, too."""

from pathlib import Path

from paredown.compress.folder_job import FinishCompress


def noted(finish: FinishCompress | None, before: tuple[str, ...]) -> FinishCompress:
    """Returns `finish` with these notes before those that it is called with."""

    def with_notes(folder: Path, notes: tuple[str, ...]) -> None:
        if finish is not None:
            finish(folder, (*before, *notes))

    return with_notes
