"""SuffixIndex: where the last tokens of a text have stood before, and what came next there.

The hash chains of LZ77 (Ziv and Lempel, 1977) over tokens. Each run of `min_match` tokens keeps its
latest `max_places` places; a search looks at those only and compares backwards from there. A token
costs O(1) to add and a search O(max_places * max_match), however long the text is.
"""

from collections.abc import Sequence
from typing import NamedTuple

MAX_MATCH = 32
MAX_PLACES = 8
# Places are kept as numbers: millions of tuples would keep Python's collector busy.
_POSITION_BITS = 40
# As many tokens before one that was changed say where it was changed.
MIN_BEFORE_CHANGE = 8


# The number of a sequence, and the position in it of the token after a run.
Place = tuple[int, int]


class Match(NamedTuple):
    """The longest run that was found, and its places, the latest first."""

    length: int
    places: list[Place]


class SuffixIndex:
    """Sequences of tokens by number. They are held, not copied, and may grow at their ends."""

    def __init__(
        self, *, min_match: int, max_match: int = MAX_MATCH, max_places: int = MAX_PLACES
    ) -> None:
        assert 1 <= min_match <= max_match
        assert max_places >= 1
        self._min_match = min_match
        self._max_match = max_match
        self._max_places = max_places
        self._places: dict[tuple[int, ...], list[int]] = {}
        self._sequences: dict[int, Sequence[int]] = {}
        # Of each sequence: runs that end before this position are indexed.
        self._num_indexed: dict[int, int] = {}

    @property
    def num_runs(self) -> int:
        return len(self._places)

    @property
    def num_sequences(self) -> int:
        return len(self._sequences)

    def update(self, sequence: int, token_ids: Sequence[int]) -> None:
        """Adds a sequence, or what it has grown by since. A run at its end counts once there is a
        token after it."""
        width = self._min_match
        start = self._num_indexed.get(sequence, width)
        end = max(start, len(token_ids))
        self._sequences[sequence] = token_ids
        known, known_places, max_places = self._places, self._places.get, self._max_places
        runs = zip(
            *(token_ids[start - width + i : end - width + i] for i in range(width)), strict=True
        )
        for place, run in enumerate(runs, (sequence << _POSITION_BITS) + start):
            places = known_places(run)
            if places is None:
                known[run] = [place]
                continue
            places.append(place)
            if len(places) > max_places:
                del places[0]
        self._num_indexed[sequence] = end

    def remove(self, sequence: int) -> None:
        """Forgets a sequence, with all its places."""
        token_ids = self._sequences.pop(sequence)
        width = self._min_match
        for position in range(width, self._num_indexed.pop(sequence)):
            run = tuple(token_ids[position - width : position])
            places = self._places.get(run)
            if places is None:
                continue
            kept = [place for place in places if place >> _POSITION_BITS != sequence]
            if kept:
                self._places[run] = kept
            else:
                del self._places[run]

    def find(self, token_ids: Sequence[int]) -> Match | None:
        """The longest suffix of `token_ids`, of `min_match` to `max_match` tokens, among the places
        kept. Where it is not among them its last token may be a changed one: then the longest of
        those before it, of `MIN_BEFORE_CHANGE` or more, and the places behind the other token."""
        tail = list(token_ids[-self._max_match - 1 :])
        match = self._longest(tail[-self._max_match :], None)
        if match is not None or not tail:
            return match
        changed = tail.pop()
        match = self._longest(tail, changed)
        if match is None or match.length < MIN_BEFORE_CHANGE:
            return None
        return Match(match.length, [(number, at + 1) for number, at in match.places])

    def _longest(self, tail: list[int], changed: int | None) -> Match | None:
        """Among the places that another token follows than `changed`."""
        width = self._min_match
        if len(tail) < width:
            return None
        best, found = 0, list[Place]()
        for number in reversed(self._places.get(tuple(tail[-width:]), ())):
            place = number >> _POSITION_BITS, number & (1 << _POSITION_BITS) - 1
            if changed is not None and self._sequences[place[0]][place[1]] == changed:
                continue
            length = self._match_length(tail, place)
            if length > best:
                best, found = length, [place]
            elif length == best:
                found.append(place)
        return Match(best, found) if found else None

    def continue_from(self, match: Match, max_tokens: int, *, own: int | None) -> list[int]:
        """What came next: at each step the token that most of the places agree on, of equally many
        the latest; places that went another way are left behind.

        A place in the sequence `own`, whose end is being guessed, goes on into the guess itself, as
        an overlapping copy of LZ77 does: a loop is guessed for as long as one likes.
        """
        guess: list[int] = []
        places = match.places
        while len(guess) < max_tokens:
            votes: dict[int, list[Place]] = {}
            for place in places:
                token_id = self._token_after(place, guess, own)
                if token_id is not None:
                    votes.setdefault(token_id, []).append(place)
            if not votes:
                break
            token_id = max(votes, key=lambda one: len(votes[one]))
            guess.append(token_id)
            places = votes[token_id]
        return guess

    def _match_length(self, tail: list[int], place: Place) -> int:
        sequence, position = place
        token_ids = self._sequences[sequence]
        length, limit = self._min_match, min(len(tail), position)
        if tail[-limit:] == token_ids[position - limit : position]:  # as in a loop
            return limit
        while length < limit and tail[-1 - length] == token_ids[position - 1 - length]:
            length += 1
        return length

    def _token_after(self, place: Place, guess: list[int], own: int | None) -> int | None:
        sequence, position = place
        token_ids = self._sequences[sequence]
        index = position + len(guess)
        if index < len(token_ids):
            return token_ids[index]
        return guess[index - len(token_ids)] if sequence == own else None
