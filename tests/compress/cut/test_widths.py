"""Widths that remain: near what was asked for, and multiples that others work well with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.compress.cut.widths import MULTIPLES, remaining_count, remaining_width
from paredown.errors import ConfigError


@pytest.mark.parametrize(
    ("width", "share", "expected"),
    [
        (1536, 0.25, 1152),
        (896, 0.25, 672),
        (896, 0.28, 640),
        (11008, 0.25, 8320),
        (4864, 0.25, 3712),
        (96, 0.37, 64),
        (2048, 0.0, 2048),
        (100, 0.0, 100),
    ],
)
def test_a_width(width: int, share: float, expected: int) -> None:
    assert remaining_width(width, share) == expected


def test_the_multiple_of_k_quants() -> None:
    assert remaining_width(1536, 0.2, 256) == 1280
    assert remaining_width(1536, 0.25, 256) in (1024, 1280)


@given(st.integers(1, 20_000), st.floats(0.001, 0.999))
def test_a_width_is_a_multiple_near_the_share(width: int, share: float) -> None:
    try:
        found = remaining_width(width, share)
    except ConfigError:
        nearest = 32 * int(width * (1 - share) / 32 + 0.5)
        assert not 0 < nearest < width
        return
    assert 0 < found < width
    assert found % 32 == 0
    distance = abs(found - width * (1 - share))
    assert distance <= 16 or (found % 64 == 0 and distance <= 0.02 * width)
    # No larger multiple was near enough.
    for multiple in MULTIPLES[: MULTIPLES.index(_multiple(found))]:
        nearest = multiple * int(width * (1 - share) / multiple + 0.5)
        assert not 0 < nearest < width or abs(nearest - width * (1 - share)) > 0.02 * width


def _multiple(width: int) -> int:
    return next(one for one in MULTIPLES if width % one == 0)


@pytest.mark.parametrize(
    ("num", "share", "expected"), [(3, 0.25, 2), (8, 0.25, 6), (8, 0.9, 1), (6, 0.3, 4), (2, 0, 2)]
)
def test_a_count(num: int, share: float, expected: int) -> None:
    assert remaining_count(num, share, "heads") == expected


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
def test_a_share_outside_is_refused(share: float) -> None:
    for remaining in (
        lambda: remaining_width(1024, share),
        lambda: remaining_count(8, share, "heads"),
    ):
        with pytest.raises(ConfigError, match="outside"):
            remaining()


def test_what_cannot_remain_is_refused() -> None:
    with pytest.raises(ConfigError, match="no multiple of 32"):
        remaining_width(64, 0.9)
    with pytest.raises(ConfigError, match="no multiple of 256"):
        remaining_width(256, 0.5, 256)
    with pytest.raises(ConfigError, match=r"removes none of the heads.*above 25"):
        remaining_count(2, 0.25, "heads")
    with pytest.raises(ConfigError, match=r"too few heads.*at most 50"):
        remaining_count(2, 0.9, "heads")
    with pytest.raises(ConfigError, match="too few experts"):
        remaining_count(8, 0.9, "experts", least=2)
