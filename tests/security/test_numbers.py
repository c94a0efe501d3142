"""Numbers that people type or a file has: one that is out of all range is an error of one line."""

import pytest

from paredown.errors import ConfigError
from paredown.plan.lengths import parse_lengths
from paredown.plan.workload import DrawnLengths, RandomWorkload

DIGITS = "9" * 5_000


@pytest.mark.parametrize("text", [DIGITS, f"~{DIGITS}", f"1-{DIGITS}"])
def test_lengths_of_thousands_of_digits_are_refused(text: str) -> None:
    """Python refuses to read such an integer with an error that names a switch of its own."""
    with pytest.raises(ConfigError, match="not a number of tokens"):
        parse_lengths(text)


@pytest.mark.parametrize("burstiness", [0.0, 5e-324, 1e-308, 1e-200, float("nan"), 1e308])
def test_a_burstiness_whose_square_is_no_number_is_refused(burstiness: float) -> None:
    lengths = DrawnLengths(prompt=parse_lengths("8"), output=parse_lengths("8"))
    with pytest.raises(ConfigError, match="burstiness"):
        RandomWorkload(requests_per_s=1, num_requests=3, lengths=lengths, burstiness=burstiness)


def test_the_least_burstiness_gives_equal_distances() -> None:
    lengths = DrawnLengths(prompt=parse_lengths("8"), output=parse_lengths("8"))
    load = RandomWorkload(requests_per_s=1, num_requests=3, lengths=lengths, burstiness=2e-6)
    assert [one.time_s for one in load] == pytest.approx([1, 2, 3], abs=1e-3)
