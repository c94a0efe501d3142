"""Notes on what a checkpoint runs otherwise than its files ask, said once."""

from collections.abc import Iterable

from paredown.cli.printed import tell

# A file can give rise to as many as it likes.
MAX_NOTES = 100


def tell_notes(notes: Iterable[str]) -> None:
    """A line of stderr for each, of the first MAX_NOTES."""
    listed = list(notes)
    for note in listed[:MAX_NOTES]:
        tell(f"note: {note}")
    if len(listed) > MAX_NOTES:
        tell(f"note: and {len(listed) - MAX_NOTES:,} more")


def join_notes(notes: Iterable[str]) -> list[str]:
    """Notes "WHERE: WHAT" that say the same of several places as one that counts them."""
    places: dict[str, list[str]] = {}
    for note in notes:
        where, _, what = note.partition(": ")
        # A note that names no place stands alone.
        places.setdefault(what or note, []).append(where)
    return [
        f"{where[0]} and {len(where) - 1} more: {what}"
        if len(where) > 1
        else (what if where[0] == what else f"{where[0]}: {what}")
        for what, where in places.items()
    ]
