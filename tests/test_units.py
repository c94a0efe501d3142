import pytest

from paredown.units import format_count, parse_bytes


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("800", 800),
        ("800B", 800),
        ("2k", 2_000),
        ("512MB", 512_000_000),
        ("1.5 GB", 1_500_000_000),
        ("2GiB", 2 << 30),
        ("1tib", 1 << 40),
    ],
)
def test_bytes_are_read_as_people_write_them(text, num_bytes):
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "1 2", "5 apples", "nan", "1.GB"])
def test_what_is_no_number_of_bytes_is_refused(text):
    with pytest.raises(ValueError, match="not a number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 requests"), (1, "1 request"), (1234, "1,234 requests")]
)
def test_counts_have_their_noun(number: int, text: str) -> None:
    assert format_count(number, "request") == text
