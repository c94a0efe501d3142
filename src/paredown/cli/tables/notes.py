"""Prints each note about a checkpoint once."""

from collections.abc import Iterable

from paredown.cli.printed import tell

# A file can cause any number of notes.
MAX_NOTES = 100


def tell_notes(notes: Iterable[str]) -> None:
    """Prints the first MAX_NOTES notes to stderr, one per line."""
    listed = list(notes)
    for note in listed[:MAX_NOTES]:
        tell(f"note: {note}")
    if len(listed) > MAX_NOTES:
        tell(f"note: and {len(listed) - MAX_NOTES:,} more")


def join_notes(notes: Iterable[str]) -> list[str]:
    """Joins notes "WHERE: WHAT" that say the same of several places into one with their number."""
    places: dict[str, list[str]] = {}
    for note in notes:
        where, _, what = note.partition(": ")
        # A note without a place stands alone.
        places.setdefault(what or note, []).append(where)
    return [
        f"{where[0]} and {len(where) - 1} more: {what}"
        if len(where) > 1
        else (what if where[0] == what else f"{where[0]}: {what}")
        for what, where in places.items()
    ]
