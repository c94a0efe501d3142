"""The algebra against numbers put in for letters."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paredown.cost.polynomial import Polynomial, Ratio, total

LETTERS = ("L", "D", "H")
VALUES = {"L": 3.0, "D": 5.0, "H": 2.0}
monomials = st.lists(st.sampled_from(LETTERS), max_size=3)
polynomials = st.lists(st.tuples(st.fractions(0, 9, max_denominator=8), monomials), max_size=4).map(
    lambda terms: total(_product(number, letters) for number, letters in terms)
)


def _product(number: Fraction, letters: list[str]) -> Polynomial:
    found = Polynomial.number(number)
    for letter in letters:
        found = found * Polynomial.letter(letter)
    return found


@given(polynomials, polynomials)
@settings(max_examples=40, deadline=None)
def test_sums_and_products_are_those_of_their_values(x: Polynomial, y: Polynomial) -> None:
    assert abs((x + y).value(VALUES) - (x.value(VALUES) + y.value(VALUES))) < 1e-6
    assert abs((x * y).value(VALUES) - x.value(VALUES) * y.value(VALUES)) < 1e-3
    assert x + y == y + x
    assert hash(x * y) == hash(y * x)


@given(polynomials, polynomials)
@settings(max_examples=40, deadline=None)
def test_a_ratio_keeps_its_value(x: Polynomial, y: Polynomial) -> None:
    over, under = x.value(VALUES), y.value(VALUES)
    ratio = Ratio.of(x, y)
    assert abs(ratio.over.value(VALUES) * under - over * ratio.under.value(VALUES)) < 1e-3


def test_it_is_written_as_papers_do() -> None:
    letter, number = Polynomial.letter, Polynomial.number
    length, hidden = letter("L"), letter("D")
    assert str(hidden * length * length * 2 + hidden) == "2L²D + D"
    assert str(number(Fraction(9, 16)) * hidden * hidden) == "0.5625D²"
    assert str(number(0)) == "0"
    assert str(number(3)) == "3"
    assert str(Ratio.of(length * hidden * 2, length * 4 + hidden * 2)) == "LD/(2L + D)"
    assert str(Ratio.of(length * hidden, length)) == "D"
    assert str(Ratio.of(number(0), length)) == "0"
    assert str(Ratio.of(length + hidden, hidden)) == "(L + D)/D"


def test_replacing_letters_and_reading_coefficients() -> None:
    letter = Polynomial.letter
    product = letter("t") * 3 * letter("D") + letter("p") + 7
    replaced = product.replace({"D": Polynomial.number(4)})
    assert replaced.coefficients(("t", "p", "r")) == (7.0, 12.0, 1.0, 0.0)


@given(polynomials, polynomials, polynomials)
@settings(max_examples=40, deadline=None)
def test_it_is_a_ring(x: Polynomial, y: Polynomial, z: Polynomial) -> None:
    """Exactly: coefficients are fractions."""
    assert x * (y + z) == x * y + x * z
    assert (x * y) * z == x * (y * z)
    assert x + 0 == x * 1 == 1 * x == x
    assert x * 0 == Polynomial({})
    assert x + x == 2 * x
    assert total([x, y, z]) == x + y + z


@given(polynomials, polynomials)
@settings(max_examples=40, deadline=None)
def test_putting_in_numbers_is_taking_the_value(x: Polynomial, y: Polynomial) -> None:
    numbers = {name: Fraction(value) for name, value in VALUES.items()}
    put = x.replace(numbers)
    assert set(put.terms) <= {()}
    assert abs(put.value() - x.value(VALUES)) < 1e-6
    swapped = x.replace({"L": y})
    assert abs(swapped.value(VALUES) - x.value(VALUES | {"L": y.value(VALUES)})) < 1e-2 * (
        1 + abs(swapped.value(VALUES))
    )
    assert x.replace({}) == x


@given(st.lists(st.fractions(0, 9, max_denominator=8), min_size=4, max_size=4))
def test_coefficients_are_those_of_a_line(numbers: list[Fraction]) -> None:
    line = total([Polynomial.number(numbers[0])])
    for number, name in zip(numbers[1:], LETTERS, strict=True):
        line = line + number * Polynomial.letter(name)
    assert line.coefficients(LETTERS) == tuple(map(float, numbers))
    with pytest.raises(AssertionError):
        (line * line + Polynomial.letter("L") * Polynomial.letter("L")).coefficients(LETTERS)


@given(polynomials, polynomials, polynomials)
@settings(max_examples=40, deadline=None)
def test_what_both_have_in_common_is_taken_out(
    x: Polynomial, y: Polynomial, common: Polynomial
) -> None:
    """Of one product of letters and a number; the ratio is the same with or without it."""
    assume(x.terms and y.terms)
    monomial = Polynomial({next(iter(common.terms), ()): Fraction(3, 2)})
    assert str(Ratio.of(x * monomial, y * monomial)) == str(Ratio.of(x, y))
