"""The offline benchmark: requests of the lengths it says, all tokens computed once by the rival's
loop, ratios round by round."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.offline import Mix, Result, make_jobs
from benchmarks.peers.slots import BATCH_TOKENS, Entry, serve


class Recorder:
    """Asserts that each sequence grows token by token from 0 until it is forgotten."""

    def __init__(self) -> None:
        self.batches: list[list[Entry]] = []
        self.finished: list[list[Entry]] = []
        self._live: dict[int, list[Entry]] = {}

    def run(self, entries: Sequence[Entry]) -> None:
        assert 0 < len(entries) <= BATCH_TOKENS
        self.batches.append(list(entries))
        for entry in entries:
            sequence = self._live.setdefault(entry[2], [])
            assert entry[1] == len(sequence)
            sequence.append(entry)

    def forget(self, sequence: int) -> None:
        self.finished.append(self._live.pop(sequence))

    @property
    def is_empty(self) -> bool:
        return not self._live


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 9)), min_size=1, max_size=12),
    st.integers(1, 5),
)
def test_every_token_is_computed_once_and_every_answer_is_whole(
    lengths: list[tuple[int, int]], num_slots: int
) -> None:
    jobs = make_jobs(lengths, 1000, seed=1)
    recorder = Recorder()
    num_tokens = serve(recorder, jobs, num_slots)
    assert recorder.is_empty
    assert num_tokens == sum(a + b - 1 for a, b in lengths)
    assert all(len({entry[2] for entry in batch}) <= num_slots for batch in recorder.batches)
    found = []
    for entries in recorder.finished:
        drawn = [position for _, position, _, has_logits in entries if has_logits]
        assert drawn == list(range(drawn[0], len(entries)))
        prompt = [token for token, *_ in entries[: drawn[0] + 1]]
        found.append((prompt, len(drawn)))
    assert sorted(found) == sorted(jobs)


def test_lengths_are_mixed_and_the_same_for_a_seed() -> None:
    mix = Mix(num_requests=500)
    lengths = mix.lengths(3)
    assert lengths == mix.lengths(3)
    assert lengths != mix.lengths(4)
    inputs, outputs = zip(*lengths, strict=True)
    assert 16 <= min(inputs) < 40
    assert 1000 < max(inputs) <= 1024
    assert 16 <= min(outputs) < 24
    assert 245 < max(outputs) <= 256
    jobs, others = make_jobs(lengths, 99, 1), make_jobs(lengths, 99, 2)
    assert [(len(prompt), count) for prompt, count in jobs] == lengths
    assert jobs != others
    quarter = make_jobs([(17, 16)], 99, 1, share=4)
    assert [(len(prompt), count) for prompt, count in quarter] == [(5, 4)]


def test_ratios_are_those_of_the_rounds() -> None:
    seconds = {"paredown": [1.0, 2.0, 4.0], "llama.cpp": [2.0, 2.0, 6.0]}
    result = Result(
        model="toy",
        format="int4-g32",
        num_input_tokens=10,
        num_output_tokens=20,
        seconds=seconds,
        settings={},
    )
    assert (result.ratio.median, result.ratio.min, result.ratio.max) == (1.5, 1.0, 2.0)
    assert result.as_json()["is_reached"]
    assert "bar 1.5: reached" in result.text()
