"""Notes on what a checkpoint runs otherwise than its files ask, said once."""

import sys
from collections.abc import Iterable


def tell_notes(notes: Iterable[str]) -> None:
    """A line of stderr for each."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


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
