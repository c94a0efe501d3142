"""Colours that can be told apart, and a picture that cannot be drawn."""

import itertools
import sys
from dataclasses import asdict

import pytest

from paredown.errors import UnsupportedError
from paredown.evaluate.pictures import picture
from paredown.evaluate.pictures.picture import DARK, LIGHT, Theme, require_matplotlib


def luminance(colour: str) -> float:
    """Relative, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_words_are_read_on_their_paper(theme: Theme) -> None:
    """4.5 is what WCAG asks for; a grid and a shade are not to be louder than words."""
    assert contrast(theme.ink, theme.paper) > contrast(theme.faint, theme.paper) >= 4.5
    for quiet in (theme.grid, theme.shade):
        assert contrast(quiet, theme.paper) < contrast(theme.front, theme.paper)
    assert len(set(asdict(theme).values())) == len(asdict(theme))


def test_lines_have_colours_of_their_own() -> None:
    names = ("BLUE", "SKY", "RED", "ORANGE", "GREEN", "PINK")
    colours = [getattr(picture, name) for name in names]
    for one, other in itertools.combinations(colours, 2):
        apart = [abs(int(one[at : at + 2], 16) - int(other[at : at + 2], 16)) for at in (1, 3, 5)]
        assert max(apart) >= 48


def test_with_matplotlib_nothing_is_said() -> None:
    require_matplotlib("leave out --plot")


def test_without_matplotlib_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"pip install matplotlib.*leave out --plot"):
        require_matplotlib("leave out --plot")
