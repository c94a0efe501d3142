"""PackedLogprobs: stores waiting log-probabilities in a tenth of the memory of their objects."""

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

from paredown.executors.sampler import Logprobs, TokenLogprob


class PackedLogprobs(Sequence[Logprobs]):
    """Rows in order, with 12 bytes for each token of a row and 4 for the row."""

    def __init__(self, rows: Iterable[Logprobs] = ()) -> None:
        # For each row the chosen token, then the likeliest ones.
        self._token_ids = array("i")
        self._logprobs = array("d")
        self._ends = array("i")
        self.extend(rows)

    @classmethod
    def of(cls, rows: Iterable[Logprobs]) -> "PackedLogprobs":
        """Returns the rows packed; rows that are packed already are not copied."""
        return rows if isinstance(rows, cls) else cls(rows)

    @property
    def num_bytes(self) -> int:
        """Returns the memory that the rows take."""
        arrays = (self._token_ids, self._logprobs, self._ends)
        return sum(len(one) * one.itemsize for one in arrays)

    @property
    def num_tokens(self) -> int:
        """Returns the number of tokens of all rows."""
        return len(self._token_ids)

    def extend(self, rows: Iterable[Logprobs]) -> None:
        if isinstance(rows, PackedLogprobs):
            rows = list(rows)
        for row in rows:
            self._token_ids.append(row.chosen.token_id)
            self._logprobs.append(row.chosen.logprob)
            for one in row.top:
                self._token_ids.append(one.token_id)
                self._logprobs.append(one.logprob)
            self._ends.append(len(self._token_ids))

    def row(self, index: int) -> tuple[Sequence[int], Sequence[float]]:
        """Returns the token ids and log-probabilities of a row, the chosen token first."""
        start, end = self._ends[index - 1] if index else 0, self._ends[index]
        return self._token_ids[start:end], self._logprobs[start:end]

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Logprobs: ...
    @overload
    def __getitem__(self, index: slice) -> list[Logprobs]: ...
    def __getitem__(self, index: int | slice) -> Logprobs | list[Logprobs]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        chosen, *top = map(TokenLogprob, *self.row(index % len(self)))
        return Logprobs(chosen, top)
