"""What a checkpoint runs otherwise than its files ask, said once."""

import sys
from collections.abc import Iterable


def tell_notes(notes: Iterable[str]) -> None:
    """A line of stderr for each."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
