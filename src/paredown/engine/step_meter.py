"""StepMeter: adds up the work and the time of an engine's steps."""

from collections import Counter
from collections.abc import Sequence

from paredown.cost.step_cost import chunk_kv_tokens, chunk_pairs
from paredown.cost.step_sums import StepSums
from paredown.executors.protocol import SequenceSlice


class StepMeter:
    """The engine's thread adds; others may read, and see sums of a moment."""

    def __init__(self, windows: Sequence[int] = ()) -> None:
        self.num_steps = 0
        self._windows = tuple(windows)
        self._seconds = 0.0
        self._steps_by_tokens = Counter[int]()
        self._num_logits = self._pairs = self._keys = 0
        self._windowed_pairs = [0] * len(self._windows)
        self._windowed_keys = [0] * len(self._windows)
        # Of the last step: where its chunks began, and the tokens whose keys it read.
        self._starts: list[int] = []
        self._last_keys = 0

    def add(self, slices: Sequence[SequenceSlice], seconds: float) -> None:
        """Adds a step that has computed these slices."""
        num_tokens = pairs = keys = 0
        self._starts = []
        for part in slices:
            start, size = part.start, len(part.token_ids)
            self._starts.append(start)
            num_tokens += size
            self._num_logits += part.num_logits
            pairs += chunk_pairs(start, size)
            keys += start + size
            self._add_windowed(start, size)
        self._note(num_tokens, pairs, keys, seconds)

    def add_again(self, seconds: float) -> None:
        """Adds a step like the last, of one token for each of its sequences, one further."""
        num_tokens = len(self._starts)
        keys = self._last_keys + num_tokens
        self._num_logits += num_tokens
        if self._windows:
            self._starts = [start + 1 for start in self._starts]
            for start in self._starts:
                self._add_windowed(start, 1)
        self._note(num_tokens, keys, keys, seconds)

    def sums(self) -> StepSums:
        return StepSums(
            seconds=self._seconds,
            steps_by_tokens=dict(self._steps_by_tokens),
            num_logits=self._num_logits,
            attention_pairs=self._pairs,
            kv_tokens_read=self._keys,
            windowed_pairs=tuple(self._windowed_pairs),
            windowed_kv_tokens_read=tuple(self._windowed_keys),
        )

    def _add_windowed(self, start: int, size: int) -> None:
        for number, window in enumerate(self._windows):
            self._windowed_pairs[number] += chunk_pairs(start, size, window)
            self._windowed_keys[number] += chunk_kv_tokens(start, size, window)

    def _note(self, num_tokens: int, pairs: int, keys: int, seconds: float) -> None:
        self.num_steps += 1
        self._steps_by_tokens[num_tokens] += 1
        self._pairs += pairs
        self._keys += keys
        self._last_keys = keys
        self._seconds += seconds
