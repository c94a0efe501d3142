"""Polynomial and Ratio: just enough algebra to add up costs in symbols and in numbers.

A cost is counted once, over the sizes of a model and of a step. Numeric sizes give numbers,
letters give the formula; coefficients are exact fractions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

# The letters of a product in order, each with its power.
Monomial = tuple[tuple[str, int], ...]
_ONE: Monomial = ()
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Polynomial:
    """A sum of products of letters. Immutable."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, Fraction]) -> None:
        self.terms = {monomial: one for monomial, one in terms.items() if one}

    @classmethod
    def number(cls, value: int | float | Fraction) -> "Polynomial":
        return cls({_ONE: Fraction(value)})

    @classmethod
    def letter(cls, name: str) -> "Polynomial":
        return cls({((name, 1),): Fraction(1)})

    def __add__(self, other: "Polynomial | int | Fraction") -> "Polynomial":
        terms = dict(self.terms)
        for monomial, one in as_polynomial(other).terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + one
        return Polynomial(terms)

    def __mul__(self, other: "Polynomial | int | Fraction") -> "Polynomial":
        terms: dict[Monomial, Fraction] = {}
        for left, x in self.terms.items():
            for right, y in as_polynomial(other).terms.items():
                product = _multiply(left, right)
                terms[product] = terms.get(product, Fraction(0)) + x * y
        return Polynomial(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def replace(self, values: Mapping[str, "Polynomial | int | Fraction"]) -> "Polynomial":
        """Replaces letters by `values`."""
        found = Polynomial({})
        for monomial, one in self.terms.items():
            product = Polynomial.number(one)
            for name, power in monomial:
                for _ in range(power):
                    product = product * values.get(name, Polynomial.letter(name))
            found = found + product
        return found

    def value(self, letters: Mapping[str, float] | None = None) -> float:
        """Returns the value for these numbers in place of the letters."""
        total = 0.0
        for monomial, one in self.terms.items():
            product = float(one)
            for name, power in monomial:
                product *= (letters or {})[name] ** power
            total += product
        return total

    def coefficients(self, letters: Sequence[str]) -> tuple[float, ...]:
        """Returns the coefficients of the constant and of each of `letters`. The polynomial must
        be linear in these."""
        found = dict.fromkeys(["", *letters], 0.0)
        for monomial, one in self.terms.items():
            assert len(monomial) <= 1, self
            assert all(power == 1 for _, power in monomial), self
            found[monomial[0][0] if monomial else ""] += float(one)
        return tuple(found.values())

    def __str__(self) -> str:
        """Returns the products in descending order of degree: '2LD² + D'."""
        if not self.terms:
            return "0"
        ordered = sorted(self.terms, key=_place)
        return " + ".join(_format(self.terms[monomial], monomial) for monomial in ordered)

    def __repr__(self) -> str:
        return f"Polynomial({self})"


@dataclass(frozen=True)
class Ratio:
    """The ratio of two polynomials without negative terms, reduced by their common factors."""

    over: Polynomial
    under: Polynomial

    @classmethod
    def of(cls, over: Polynomial, under: Polynomial) -> "Ratio":
        if not over.terms or not under.terms:
            return cls(over, under)
        monomials = [*over.terms, *under.terms]
        common = {
            name: min(dict(monomial).get(name, 0) for monomial in monomials)
            for name, _ in monomials[0]
        }
        numbers = [*over.terms.values(), *under.terms.values()]
        content = Fraction(
            gcd(*(number.numerator for number in numbers)),
            lcm(*(number.denominator for number in numbers)),
        )
        return cls(_divide(over, common, content), _divide(under, common, content))

    def __str__(self) -> str:
        if self.under == Polynomial.number(1) or not self.over.terms:
            return str(self.over)
        over, under = str(self.over), str(self.under)
        if len(self.over.terms) > 1:
            over = f"({over})"
        return f"{over}/{under}" if len(under) == 1 else f"{over}/({under})"


def as_polynomial(value: "Polynomial | int | Fraction") -> Polynomial:
    return value if isinstance(value, Polynomial) else Polynomial.number(value)


def total(parts: Iterable[Polynomial]) -> Polynomial:
    return sum(parts, Polynomial({}))


def _multiply(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted(powers.items()))


def _divide(value: Polynomial, common: Mapping[str, int], content: Fraction) -> Polynomial:
    terms = {}
    for monomial, number in value.terms.items():
        rest = ((name, power - common.get(name, 0)) for name, power in monomial)
        terms[tuple((name, power) for name, power in rest if power)] = number / content
    return Polynomial(terms)


# The order in which the letters of a product are printed, as in papers: tokens, then sizes.
_PRINTED = "BLSWXEkHKDdIJFV"


def _place(monomial: Monomial) -> tuple[int, list[int]]:
    letters = [_PRINTED.find(name) for name, power in monomial for _ in range(power)]
    return -len(letters), sorted(letters)


def _format(number: Fraction, monomial: Monomial) -> str:
    letters = "".join(
        name if power == 1 else name + str(power).translate(_SUPERSCRIPTS)
        for name, power in sorted(monomial, key=lambda one: _PRINTED.find(one[0]))
    )
    if not letters:
        return f"{float(number):g}"
    return letters if number == 1 else f"{float(number):g}{letters}"
